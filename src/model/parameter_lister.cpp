#include "model/parameter_lister.hpp"

#include <algorithm>
#include <cmath>

#include "config/family.hpp"

namespace forge {

namespace {

std::string joined(std::string text, const NameParts& parts) {
  for (const std::string_view part : parts) text += part;
  return text;
}

}  // namespace

std::string hf_block_name(const ModelSpec& spec, std::int64_t layer) {
  const bool gpt2 = tensor_names(spec.options.family).gpt2;
  return (gpt2 ? "transformer.h." : "model.layers.") + std::to_string(layer) + ".";
}

TensorNames ParameterLister::names() const {
  return tensor_names(spec.options.family);
}
bool ParameterLister::gpt2() const {
  return names().gpt2;
}
double ParameterLister::norm_offset() const {
  return names().norm_offset;
}

double ParameterLister::output_std() const {
  return spec.options.residual_scaling ? matrix_std() / std::sqrt(2.0 * static_cast<double>(spec.L())) : matrix_std();
}

Section ParameterLister::section_of(const TensorSpec& tensor) {
  if (tensor.shape.size() == 1) return tensor.split.empty() ? Section::vectors : Section::split_vectors;
  return tensor.split.empty() ? Section::matrices : Section::split_matrices;
}

void ParameterLister::declare(const TensorSpec& t, Section section) {
  if (!declares()) return;
  Parameter p;
  p.name = joined(unit_->name + ".", t.name);
  const std::string peft = is_adapter(kind) ? "base_model.model." : "";
  if (!t.hf.empty()) p.hf_name = joined(peft + (layer >= 0 ? hf_block_name(spec, layer) : ""), t.hf);
  p.hf_transposed = t.transposed;
  p.hf_offset = t.offset;
  p.hf_packed = t.packed;
  p.section = section;
  p.group = next_ - 1;
  p.shape.assign(t.shape.begin(), t.shape.end());
  p.hf_shape.assign(t.hf_shape.begin(), t.hf_shape.end());
  p.split.assign(t.split.begin(), t.split.end());
  p.expert = t.expert;
  p.initial = t.initial;
  p.std = t.std;
  unit_->parameters.push_back(std::move(p));
}

void ParameterLister::finish() {
  if (!declares()) return require(next_ == groups_->size(), "a list leaves members of its unit out");
  auto& list = unit_->parameters;
  const auto place = [](const Parameter& p) { return std::pair(p.section, p.group); };
  std::stable_sort(list.begin(), list.end(),
                   [&](const Parameter& a, const Parameter& b) { return place(a) < place(b); });
  unit_->groups = next_;
}

}  // namespace forge
