#include "checkpoint/hf_source.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>

#include "config/family.hpp"
#include "config/report.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "hf/fp8/block_scales.hpp"
#include "hf/mxfp4.hpp"
#include "nn/units.plan.hpp"

namespace forge {

const TensorInfo* find_tensor(const TensorFiles& files, const std::string& name) {
  const TensorInfo* info = files.find(name);
  for (const std::string_view prefix : {"transformer.", "model."}) {
    if (info || !name.starts_with(prefix)) continue;
    const std::string rest = name.substr(prefix.size());
    info = files.find(rest);
    if (!info) info = files.find("model.language_model." + rest);
  }
  return info ? info : files.find("language_model." + name);
}

namespace {

// Whether a tensor has matrices (m, n) of all experts.
bool is_packed(const TensorInfo& tensor, const Parameter& p, std::int64_t m, std::int64_t n) {
  return tensor.shape == std::vector<std::int64_t>{p.experts, m, n};
}

// The tensor of all experts that would have an expert's matrix, in a name that ends in "experts.3.up_proj.weight".
HfPlace find_packed(const TensorFiles& files, const Parameter& p) {
  const std::string mark = "experts." + std::to_string(p.expert) + ".";
  const std::size_t at = p.hf_name.rfind(mark);
  if (at == std::string::npos) return {};
  const bool down = p.name.ends_with(".down"), up = p.name.ends_with(".up");
  const std::string own = p.hf_name.substr(0, at), last = down ? "experts.down_proj" : "experts.gate_up_proj";
  const TensorInfo* info = find_tensor(files, own + last);
  // The module is mlp there in every family.
  if (const std::size_t moe = own.rfind("block_sparse_moe."); !info && moe != std::string::npos)
    info = find_tensor(files, own.substr(0, moe) + "mlp." + last);
  const std::int64_t matrix = p.elements(), rows = (down ? 1 : 2) * p.shape[0];
  if (!info || !is_packed(*info, p, p.shape[1], rows) || is_packed(*info, p, rows, p.shape[1]))
    return {info, down ? p.expert * matrix : (2 * p.expert + (up ? 1 : 0)) * matrix, true};
  return {info, p.expert * rows * p.shape[1] + (up ? p.shape[0] : 0), true, rows};
}

// As packed_place() says, or in MXFP4.
HfPlace find_in_packed(const TensorFiles& files, const Parameter& p) {
  const PackedPlace place = packed_place(p);
  const std::int64_t begin = p.expert * place.block + place.first;
  if (const TensorInfo* info = find_tensor(files, place.name)) return {info, begin, true, place.row_length};
  if (p.shape.size() == 1) return {};
  const TensorInfo* blocks = find_tensor(files, place.name + "_blocks");
  if (!blocks) return {};
  return {blocks, p.expert * place.row_length + place.first, true, 0, find_tensor(files, place.name + "_scales")};
}

// "" or why the packed tensor isn't the parameter's.
std::string packed_problem(const TensorFiles& files, const HfPlace& place, const Parameter& p) {
  const PackedPlace packed = packed_place(p);
  if (!place.tensor) return "tensor " + packed.name + " " + shape_text(packed.shape) + " is missing";
  if (place.tensor->name.ends_with("_blocks"))
    return mxfp4_problem(files, *place.tensor, place.scales, {packed.shape[0], packed.shape[2], packed.shape[1]});
  if (place.tensor->shape == packed.shape) return "";
  return files.file_of(*place.tensor) + ": tensor " + place.tensor->name + " has shape " +
         shape_text(place.tensor->shape) + ", config.json asks for " + shape_text(packed.shape);
}

// Of the tensor of all experts that has the parameter's.
std::vector<std::int64_t> packed_shape(const Parameter& p) {
  return {p.experts, p.shape[0] * (p.name.ends_with(".down") ? 1 : 2), p.shape[1]};
}

// Of an adapter.
bool is_factor(const Parameter& p) {
  return p.name.ends_with(".lora_a") || p.name.ends_with(".lora_b");
}

// Buffers that older versions of transformers saved with a model's parameters.
bool is_buffer(const std::string& name) {
  constexpr std::array ends{"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", ".attn.bias",
                            ".attn.masked_bias"};
  return std::any_of(ends.begin(), ends.end(), [&](const char* end) { return name.ends_with(end); });
}

// The layer behind the last one that a name is of: multi-token prediction's, −1: none.
std::int64_t depth_of(const std::string& name, const ModelSpec& spec) {
  if (tensor_names(spec.options.family).mtp) return name.starts_with("mtp.") ? 0 : -1;
  constexpr std::string_view layers = "layers.";
  const std::size_t at = name.find(layers);
  if (at == std::string::npos) return -1;
  std::int64_t layer = -1;
  std::from_chars(name.data() + at + layers.size(), name.data() + name.size(), layer);
  return layer >= spec.L() ? layer - spec.L() : -1;
}

// Multi-token layers' own copies of embedding and head, which are the model's.
bool is_shared_copy(const std::string& name) {
  return name.ends_with(".embed_tokens.weight") || name.ends_with(".shared_head.head.weight");
}

// "a, b, c and 5 more".
std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t shown_names = 3;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < shown_names; ++i) text += (i ? ", " : "") + shown(names[i]);
  return text + (names.size() > shown_names ? " and " + std::to_string(names.size() - shown_names) + " more" : "");
}

std::string unread_text(const TensorFiles& files, const std::set<std::string>& read, const ModelSpec& spec) {
  std::vector<std::string> unknown, depths;
  for (const std::string& name : files.names()) {
    const std::int64_t depth = depth_of(name, spec);
    if (read.count(name) || is_buffer(name) || (depth >= 0 && depth < spec.options.mtp_depth && is_shared_copy(name)))
      continue;
    if (spec.options.tied_embeddings && name.ends_with(head_name)) continue;  // compared with the embedding
    (depth >= spec.options.mtp_depth ? depths : unknown).push_back(name);
  }
  std::string text;
  if (!unknown.empty())
    text = counted(std::ssize(unknown), "tensor") + " that no part of the model reads: " + first_of(unknown);
  if (!depths.empty())
    text += (text.empty() ? "" : "; ") + counted(std::ssize(depths), "tensor") +
            " of layers behind the last, left out (model.mtp_depth = " + std::to_string(spec.options.mtp_depth) +
            "): " + first_of(depths);
  return text;
}

}  // namespace

std::vector<std::int64_t> file_shape(const Parameter& p) {
  if (p.hf_transposed) return {p.shape[1], p.shape[0]};
  return p.hf_shape.empty() ? p.shape : p.hf_shape;
}

PackedPlace packed_place(const Parameter& p) {
  const std::size_t at = p.hf_name.rfind("experts."), own = p.name.rfind('.');
  require(at != std::string::npos && own != std::string::npos && p.hf_packed > p.expert, "an expert's name is another");
  const bool matrix = p.shape.size() == 2, down = p.name.compare(own, 5, ".down") == 0,
             up = p.name.compare(own, 3, ".up") == 0;
  const std::int64_t step = down ? 1 : 2, row = step * p.shape[0], rows = matrix ? p.shape[1] : 1;
  PackedPlace place{
      p.hf_name.substr(0, at) + "experts." + (down ? "down_proj" : "gate_up_proj") + (matrix ? "" : "_bias"),
      {p.hf_packed, row},
      rows * row,
      up ? 1 : 0,
      step,
      row,
      down || up};
  if (matrix) place.shape.insert(place.shape.begin() + 1, rows);
  return place;
}

template <class A>
std::vector<A> read_packed(const TensorFiles& files, const HfPlace& place, const Parameter& p) {
  const PackedPlace packed = packed_place(p);
  std::vector<A> values(to_size(p.elements()));
  const std::int64_t m = p.shape[0], n = p.shape.size() == 2 ? p.shape[1] : 1;
  if (place.scales) {
    read_mxfp4<A>(files, *place.tensor, *place.scales, n, place.first, packed.step, values);
    return values;
  }
  std::vector<A> block(to_size(packed.block));
  files.read(*place.tensor, std::span<A>(block), p.expert * packed.block);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) values[to_size(i * n + j)] = block[to_size(packed.at(i, j))];
  return values;
}
template std::vector<float> read_packed<float>(const TensorFiles&, const HfPlace&, const Parameter&);
template std::vector<double> read_packed<double>(const TensorFiles&, const HfPlace&, const Parameter&);

template <class A>
void put_packed(const std::vector<A>& values, const Parameter& p, std::span<A> block) {
  const PackedPlace packed = packed_place(p);
  const std::int64_t m = p.shape[0], n = p.shape.size() == 2 ? p.shape[1] : 1;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) block[to_size(packed.at(i, j))] = values[to_size(i * n + j)];
}
template void put_packed<float>(const std::vector<float>&, const Parameter&, std::span<float>);
template void put_packed<double>(const std::vector<double>&, const Parameter&, std::span<double>);

std::vector<RowRun> element_runs(const Parameter& p, const Range& elements) {
  const std::int64_t width = p.elements() / p.shape[0];
  std::vector<RowRun> runs;
  for (const RowRun& run : row_runs(p)) {
    const std::int64_t begin = run.own * width;
    const Range part = intersection({begin, begin + run.rows * width}, elements);
    if (!part.empty()) runs.push_back({part.begin, run.there * width + part.begin - begin, part.size()});
  }
  return runs;
}

HfPlace find_values(const TensorFiles& files, const Parameter& p) {
  if (p.hf_packed > 0) return find_in_packed(files, p);
  if (const TensorInfo* info = find_tensor(files, p.hf_name)) return {info};
  return p.expert >= 0 ? find_packed(files, p) : HfPlace{};
}

std::string problem_of(const TensorFiles& files, const Parameter& p) {
  const HfPlace place = find_values(files, p);
  if (p.hf_packed > 0) return packed_problem(files, place, p);
  if (!place.tensor) return "tensor " + p.hf_name + " " + shape_text(file_shape(p)) + " is missing";
  const TensorInfo& info = *place.tensor;
  if (place.packed ? place.row_length > 0 || info.shape == packed_shape(p) : info.shape == file_shape(p)) return "";
  return files.file_of(info) + ": tensor " + info.name + " has shape " + shape_text(info.shape) +
         (is_factor(p) ? ", adapter.rank and the model ask for " : ", config.json asks for ") +
         shape_text(place.packed ? packed_shape(p) : file_shape(p));
}

void check_adapter_tensors(const std::string& directory, const ModelSpec& spec) {
  const TensorFiles files = TensorFiles::open(directory, adapter_stem);
  const std::string key = "adapter.load", file = key + " " + directory + "/" + adapter_stem + ".safetensors";
  Report report;
  std::set<std::string> own;
  for (const Unit& unit : parameter_units(spec))
    for (const Parameter& p : unit.parameters) {
      if (!is_adapter(unit.kind)) continue;
      const TensorInfo* const info = find_values(files, p).tensor;
      std::string problem = problem_of(files, p);
      if (problem.empty()) problem = weight_problem(files, *info, false);
      if (!problem.empty()) report.add(info ? key : file, problem);
      if (info) own.insert(info->name);
    }
  std::vector<std::string> foreign;
  for (const std::string& name : files.names())
    if (own.count(name) == 0) foreign.push_back(name);
  if (!foreign.empty())
    report.add(file, counted(std::ssize(foreign), "tensor") + " of no matrix of adapter.targets: " + first_of(foreign) +
                         "; legal: those of the targets alone");
  report.throw_if_any(key + " " + directory);
}

HfSummary summary_of(const std::string& directory, const ModelSpec& spec) {
  const TensorFiles files = TensorFiles::open(directory);
  std::set<std::string> read;
  HfSummary summary;
  const auto take = [&](const TensorInfo* info) {
    if (!info || !read.insert(info->name).second) return;
    ++summary.tensors;
    if (const TensorInfo* scales = files.find(scale_name(info->name))) read.insert(scales->name);
  };
  for (const Unit& unit : parameter_units(spec))
    for (const Parameter& p : unit.parameters) {
      const HfPlace place = find_values(files, p);
      take(place.tensor);
      take(place.scales);
    }
  for (const RouterBias& bias : router_biases(spec)) take(find_tensor(files, bias.hf_name));
  summary.unread = unread_text(files, read, spec);
  return summary;
}

}  // namespace forge
