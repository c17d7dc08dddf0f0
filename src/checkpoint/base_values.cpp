#include "checkpoint/base_values.hpp"

#include <span>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "hf/fp8/block_scales.hpp"
#include "hf/model_files.hpp"

namespace forge {

namespace {

// As a checkpoint of that type has it.
template <class A>
float as_stored(A value, double offset, DType type) {
  if (type == DType::f64) return static_cast<float>(static_cast<double>(value) + offset);
  const float sum = static_cast<float>(value) + static_cast<float>(offset);
  return type == DType::bf16 ? static_cast<float>(bf16(sum)) : sum;
}

}  // namespace

BaseFiles::BaseFiles(const std::string& directory) : directory_(directory), files_(TensorFiles::open(directory)) {}

std::unique_ptr<BaseFiles> BaseFiles::of(const ModelDeck& model) {
  if (!model.load_weights || weight_files(model.hf) != WeightFiles::safetensors) return nullptr;
  return std::unique_ptr<BaseFiles>(new BaseFiles(model.hf));
}

template <class A>
std::vector<A> BaseFiles::read(const Parameter& p) const {
  const HfPlace place = find_values(files_, p);
  if (p.hf_packed > 0) return read_packed<A>(files_, place, p);
  std::vector<A> values(to_size(p.elements()));
  if (place.row_length == 0) {
    read_weight(files_, *place.tensor, std::span(values), place.first);
    return values;
  }
  std::vector<A> row(to_size(p.shape[0]));
  for (std::int64_t j = 0; j < p.shape[1]; ++j) {
    read_weight(files_, *place.tensor, std::span(row), place.first + j * place.row_length);
    for (std::int64_t i = 0; i < p.shape[0]; ++i) values[to_size(i * p.shape[1] + j)] = row[to_size(i)];
  }
  return values;
}

template <class A>
std::vector<A> BaseFiles::values(const Parameter& p, const std::vector<float>& stored, DType type) const {
  const auto refuse = [&](const std::string& problem) {
    throw BadInput("forge export --merge: model.hf " + directory_ + " isn't the model that the run began with: " +
                   problem + "; legal: that one, or no files there, which takes the checkpoint's rounded weights");
  };
  if (const std::string problem = problem_of(files_, p); !problem.empty()) refuse(problem);
  std::vector<A> values = read<A>(p);
  require(values.size() == stored.size(), "a tensor of model.hf has another size than the checkpoint's");
  for (std::size_t i = 0; i < values.size(); ++i)
    if (as_stored(values[i], p.hf_offset, type) != stored[i]) refuse("tensor " + p.hf_name + " has other values");
  return values;
}

template std::vector<float> BaseFiles::values<float>(const Parameter&, const std::vector<float>&, DType) const;
template std::vector<double> BaseFiles::values<double>(const Parameter&, const std::vector<float>&, DType) const;

}  // namespace forge
