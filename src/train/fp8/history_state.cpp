#include "train/checkpoints.hpp"

namespace forge {

namespace {

constexpr const char* history_name = "state/fp8_history";

}  // namespace

std::vector<StateTensor> amax_history_state(const ModelSpec& spec, const AmaxHistory& history) {
  if (history.entries.empty()) return {};
  const Extents shape{AmaxHistory::blocks(spec), AmaxHistory::operands, history.entries.columns()};
  return {
      {history_name, DType::f32, shape, 0, {{{{0, 0, 0}, shape}, reinterpret_cast<std::byte*>(history.entries.data)}}}};
}

std::string legal_history(const std::string& name, const Extents* stored) {
  if (name != history_name) return "";
  if (!stored) return "; legal: another train.fp8_recipe than delayed";
  return stored->size() == 3 ? "; legal: train.fp8_history = " + std::to_string((*stored)[2]) : "";
}

}  // namespace forge
