#include "model/parameter_lister.hpp"

#include <algorithm>
#include <cmath>

#include "config/family.hpp"

namespace forge {

namespace {

std::string joined(std::string_view begin, const NameParts& parts) {
  std::size_t length = begin.size();
  for (const std::string_view part : parts) length += part.size();
  std::string text;
  text.reserve(length);
  text += begin;
  for (const std::string_view part : parts) text += part;
  return text;
}

}  // namespace

std::string hf_block_name(const ModelSpec& spec, std::int64_t layer) {
  const TensorNames& names = tensor_names(spec.options.family);
  if (names.mtp && layer >= spec.L()) return "mtp.layers." + std::to_string(layer - spec.L()) + ".";
  return (names.gpt2 ? "transformer.h." : "model.layers.") + std::to_string(layer) + ".";
}

ParameterLister::ParameterLister(const ModelSpec& whole, Unit& unit)
    : spec(whole), kind(unit.kind), layer(unit.layer), unit_(&unit), name_begin_(unit.name + ".") {
  if (layer >= 0) hf_begin_ = (is_adapter(kind) ? "base_model.model." : "") + hf_block_name(spec, layer);
  if (kind == UnitKind::experts) list_.reserve(to_size(3 * spec.E()));
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

bool ParameterLister::mtp_names() const {
  return names().mtp;
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
  p.name = joined(name_begin_, t.name);
  if (!t.hf.empty()) p.hf_name = joined(t.whole_name ? "" : hf_begin_, t.hf);
  p.hf_transposed = t.transposed;
  p.hf_offset = t.offset;
  p.hf_packed = t.packed;
  p.hf_groups = t.groups;
  p.section = section;
  p.group = next_ - 1;
  p.shape.assign(t.shape.begin(), t.shape.end());
  p.hf_shape.assign(t.hf_shape.begin(), t.hf_shape.end());
  p.split.assign(t.split.begin(), t.split.end());
  p.expert = t.expert;
  if (t.expert >= 0) p.experts = spec.E();
  p.initial = t.initial;
  p.std = t.std;
  list_.push_back(std::move(p));
}

void ParameterLister::finish() {
  if (!declares()) return require(next_ == groups_->size(), "a list leaves members of its unit out");
  const auto before = [](const Parameter& a, const Parameter& b) {
    return std::pair(a.section, a.group) < std::pair(b.section, b.group);
  };
  if (!std::is_sorted(list_.begin(), list_.end(), before)) std::stable_sort(list_.begin(), list_.end(), before);
  unit_->parameters = std::move(list_);
  unit_->groups = next_;
}

}  // namespace forge
