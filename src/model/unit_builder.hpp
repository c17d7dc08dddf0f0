#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "model/parameters.hpp"

namespace forge {

// Writes the parameters of a unit. Layers add theirs in any order (nn/*.plan.cpp): they stand in that of their Roles.
class UnitBuilder {
 public:
  UnitBuilder(const ModelSpec& spec, UnitKind kind, std::int64_t layer, std::string name)
      : spec(spec), layer(layer), unit_{kind, layer, std::move(name), {}} {}

  const ModelSpec& spec;
  const std::int64_t layer;

  Parameter& add(Role role, const std::string& name, const std::string& hf, std::vector<std::int64_t> shape,
                 std::vector<Split> split, Initial initial, double std = 0, bool transposed = false) {
    const bool is_vector = shape.size() == 1;
    unit_.parameters.push_back({unit_.name + "." + name, hf, transposed, role, std::move(shape), std::move(split), -1,
                                is_vector, initial, std});
    return unit_.parameters.back();
  }
  // What every tensor-parallel rank has whole.
  Parameter& add(Role role, const std::string& name, const std::string& hf, std::vector<std::int64_t> shape,
                 Initial initial, double std = 0) {
    return add(role, name, hf, std::move(shape), {}, initial, std);
  }
  Unit finish() {
    std::stable_sort(unit_.parameters.begin(), unit_.parameters.end(),
                     [](const Parameter& a, const Parameter& b) { return a.role < b.role; });
    return std::move(unit_);
  }

  // Names in the family's Hugging Face checkpoints. GPT-2 fuses q, k and v and stores matrices (in, out).
  bool gpt2() const { return tensor_names(spec.options.family).gpt2; }
  std::string hf(const char* others, const char* gpt2_name) const { return gpt2() ? gpt2_name : others; }
  std::string hf_of_block() const { return hf("model.layers.", "transformer.h.") + std::to_string(layer) + "."; }
  std::string hf_of_block(const char* others, const char* gpt2_name) const {
    return hf_of_block() + hf(others, gpt2_name);
  }

  // Standard deviations of matrices, and of those that add to the residual stream.
  double matrix_std() const { return spec.options.initial_std; }
  double output_std() const {
    return spec.options.residual_scaling ? matrix_std() / std::sqrt(2.0 * static_cast<double>(spec.L())) : matrix_std();
  }

 private:
  Unit unit_;
};

// How tp ranks share rows or columns, by whole granules.
inline std::vector<Split> split_rows(std::int64_t granule = 1) {
  return {{0, granule}};
}
inline std::vector<Split> split_columns(std::int64_t granule = 1) {
  return {{1, granule}};
}

}  // namespace forge
