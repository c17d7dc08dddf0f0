#include "checkpoint/export_hf.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "checkpoint/base_values.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/hf_source.hpp"
#include "checkpoint/model_directory.hpp"
#include "checkpoint/storage_state.hpp"
#include "checkpoint/torch_optimizer.hpp"
#include "config/check_parts.hpp"
#include "config/family.hpp"
#include "config/read.hpp"
#include "config/text.hpp"
#include "core/to_size.hpp"
#include "hf/adapter_config.hpp"
#include "hf/config.hpp"
#include "hf/families.hpp"
#include "hf/fp8/block_scales.hpp"
#include "hf/tensor_directory.hpp"
#include "model/buffers.hpp"
#include "model/parameters.hpp"
#include "nn/adapter.plan.hpp"
#include "nn/units.plan.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

// A tensor of the result and where it stands in the checkpoint.
struct Exported {
  TensorInfo info;
  std::string stored;  // its name there
  Box box;             // of that tensor
  bool transposed = false;
  double offset = 0;              // the values there are less by this
  std::vector<RowRun> runs = {};  // of rows that stand in another order; empty: in the same
  bool scales = false;            // those of the tensor before it
  // Of a tensor of all experts: their parameters, in the order of the blocks; `stored` and `box` are theirs.
  struct Part {
    Parameter parameter;
    std::string stored;
    Box box;
  };
  std::vector<Part> parts = {};
  struct Factors {
    std::string a, b;  // (r, K), (N, r) there; "": nothing is merged into it
    double scale = 0;
    std::int64_t expert = -1;  // whose they are of those of all experts, (E, r, K) and (E, N, r)
  } adapter = {};
  std::shared_ptr<const Parameter> parameter = nullptr;  // null: a router's bias, or in parts
};

// Whether a parameter is a matrix of a block's or an expert's linear layers.
bool is_linear(const Parameter& p) {
  if (p.shape.size() != 2 || p.name.ends_with(".output_gate")) return false;
  constexpr std::array places{".attention.", ".mlp.", ".experts.", ".shared."};
  return std::any_of(places.begin(), places.end(),
                     [&](const char* place) { return p.name.find(place) != std::string::npos; });
}

std::string type_of(const ModelSpec& spec, const Parameter& p, ExportType type) {
  const bool router = p.name.ends_with(".router");
  if (type == ExportType::fp32 || (router && hf_family(spec.options.family).exact_router)) return "F32";
  return type == ExportType::coded && is_linear(p) ? code_type : "BF16";
}

// The adapter of a matrix of a layer, which --merge adds to it; empty where the matrix has none.
Exported::Factors factors_of(const ModelSpec& spec, std::int64_t layer, const Parameter& p) {
  const auto has = [&](const AdaptedProduct& product) {
    const AdaptedTensors tensors = tensors_of(spec, product);
    return std::any_of(tensors.begin(), tensors.end(), [&](const AdaptedTensor& t) {
      return t.adapted && p.name.ends_with("." + std::string(t.name));
    });
  };
  const bool adapted = p.expert >= 0 ? has(BlockProduct::expert_gate_up) || has(BlockProduct::expert_down)
                                     : layer >= 0 && std::ranges::any_of(adapted_products(spec, layer), has);
  if (!adapted) return {};
  const std::string name = "parameters/" + place_of(p, spec.E()).name;
  return {name + ".lora_a", name + ".lora_b", adapter_scale(spec.options.adapter), p.expert};
}

// An earlier export of the run of the other kind, whose files would stay beside these.
void refuse_other_kind(const std::string& directory, bool adapters) {
  std::error_code missing;
  if (!std::filesystem::exists(directory + (adapters ? "/config.json" : "/adapter_config.json"), missing)) return;
  throw BadInput(
      "forge export: --output " + directory + " holds " +
      (adapters ? "a model, and adapters would stand beside it" : "adapters, and a model would stand beside them") +
      "; legal: another directory, or this one without the earlier export");
}

// Those of adapters, or of all other units.
std::vector<Exported> exported_tensors(const ModelSpec& spec, ExportType type, bool adapters) {
  std::vector<Exported> tensors;
  for (const Unit& unit : parameter_units(spec))
    for (const Parameter& p : unit.parameters) {
      if (is_adapter(unit.kind) != adapters) continue;
      const TensorPlace place = place_of(p, spec.E());
      const Box box = place.box({Extents(p.shape.size(), 0), p.shape});
      if (p.hf_packed > 0) {
        const PackedPlace packed = packed_place(p);
        if (tensors.back().info.name != packed.name)
          tensors.push_back({{packed.name, type_of(spec, p, type), packed.shape}, "", {}});
        tensors.back().parts.push_back({p, "parameters/" + place.name, box});
        continue;
      }
      Exported t{{p.hf_name, type_of(spec, p, type), file_shape(p)},
                 "parameters/" + place.name,
                 box,
                 p.hf_transposed,
                 p.hf_offset,
                 p.hf_groups > 0 ? row_runs(p) : std::vector<RowRun>{}};
      t.parameter = std::make_shared<Parameter>(p);
      if (!adapters) t.adapter = factors_of(spec, unit.layer, p);
      tensors.push_back(t);
      if (t.info.type != code_type) continue;
      t.adapter = {};
      t.info = {scale_name(p.hf_name), "F32", scale_shape(t.info.shape)};
      t.scales = true;
      tensors.push_back(t);
    }
  if (adapters) return tensors;
  for (const RouterBias& bias : router_biases(spec))  // F32, as transformers keeps them
    tensors.push_back({{bias.hf_name, "F32", {spec.E()}}, "state/" + bias.name, {{0}, {spec.E()}}});
  return tensors;
}

// Matrices that files in FP8 have in another type, by module.
CodedWeights coded_weights(const ModelSpec& spec) {
  constexpr std::string_view suffix = ".weight";
  CodedWeights weights;
  for (const Unit& unit : parameter_units(spec))
    for (const Parameter& p : unit.parameters)
      if (unit.kind != UnitKind::token_table && p.shape.size() == 2 && !is_linear(p))
        weights.plain_modules.push_back(p.hf_name.substr(0, p.hf_name.size() - suffix.size()));
  return weights;
}

// A tensor's values, and their type in the checkpoint.
struct Values {
  std::vector<float> values;
  DType type;
};

float value_at(const std::vector<std::byte>& bytes, std::size_t element, DType type, double offset) {
  return with_compute_type(type, [&](auto value) {
    std::memcpy(&value, bytes.data() + element * sizeof value, sizeof value);
    return static_cast<float>(static_cast<double>(value) - offset);
  });
}

// The tensor in the order of the file.
Values stored_values(CheckpointFiles& files, const Exported& t) {
  const StoredTensor* stored = files.find(t.stored);
  if (!stored) throw BadCheckpoint(files.directory() + " has no tensor " + t.stored);
  if (stored->type != DType::f32 && stored->type != DType::f64 && stored->type != DType::bf16)
    throw BadCheckpoint(files.directory() + ": tensor " + t.stored + " is none of fp32, fp64 and bf16");
  std::vector<std::byte> bytes(to_size(t.box.size()) * size_of(stored->type));
  files.read({{t.stored, stored->type, stored->shape, 0, {{t.box, bytes.data()}}}});
  const std::size_t n = to_size(t.box.size());
  const std::size_t columns = t.transposed ? to_size(t.info.shape[1]) : n,
                    rows = t.transposed ? to_size(t.info.shape[0]) : 1;
  std::vector<float> values;
  values.reserve(n);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      values.push_back(value_at(bytes, t.transposed ? j * rows + i : j, stored->type, t.offset));
  if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }))
    throw Error(files.directory() + ": tensor " + t.stored + " has a number that is NaN or Inf in fp32",
                ExitCode::not_finite);
  if (!t.runs.empty()) values = in_file_rows(values, t.runs);
  return {std::move(values), stored->type};
}

std::vector<float> values_of(CheckpointFiles& files, const Exported& t) {
  return stored_values(files, t).values;
}

// From the files of the base model, where there are any.
template <class A>
std::vector<A> values_of(CheckpointFiles& files, const BaseFiles* base, Exported t) {
  const std::shared_ptr<const Parameter> p = t.parameter;
  if (!base || !p) {
    const std::vector<float> values = values_of(files, t);
    return {values.begin(), values.end()};
  }
  t.offset = 0;
  const Values stored = stored_values(files, t);
  return base->values<A>(*p, stored.values, stored.type);
}

// W += scale B A, in the order of the file.
void merge(CheckpointFiles& files, const Exported& t, std::vector<double>& w) {
  const auto whole = [&](const std::string& name, const std::vector<RowRun>& runs) {
    const StoredTensor* stored = files.find(name);
    if (!stored) throw BadCheckpoint(files.directory() + " has no tensor " + name);
    Box box{Extents(stored->shape.size(), 0), stored->shape};
    if (t.adapter.expert >= 0) {
      box.offset[0] = t.adapter.expert;
      box.extent[0] = 1;
    }
    const Extents shape(stored->shape.end() - 2, stored->shape.end());
    return std::pair(shape, values_of(files, {{name, "F32", shape}, name, box, false, 0, runs}));
  };
  const auto [a_shape, a] = whole(t.adapter.a, {});
  const auto [b_shape, b] = whole(t.adapter.b, t.runs);
  const std::int64_t N = b_shape[0], K = a_shape[1], r = a_shape[0];
  require(b_shape[1] == r && N * K == std::ssize(w), "an adapter's matrices have other shapes than the model's");
#pragma omp parallel for
  for (std::int64_t i = 0; i < N; ++i) {
    std::vector<double> row(to_size(K), 0);
    for (std::int64_t k = 0; k < r; ++k)
      for (std::int64_t j = 0; j < K; ++j)
        row[to_size(j)] += static_cast<double>(b[to_size(i * r + k)]) * static_cast<double>(a[to_size(k * K + j)]);
    for (std::int64_t j = 0; j < K; ++j)
      w[to_size(t.transposed ? j * N + i : i * K + j)] += t.adapter.scale * row[to_size(j)];
  }
}

// Where a checkpoint stands: its path without its own name.
std::string directory_of(const std::string& checkpoint) {
  const fs::path path = fs::absolute(checkpoint);
  return (path.has_filename() ? path : path.parent_path()).parent_path();
}

template <class V>
std::vector<std::byte> bytes_of(const std::vector<V>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Of a tensor of all experts, block after block.
template <class V>
std::vector<std::byte> packed_bytes(CheckpointFiles& files, const BaseFiles* base, const Exported& t) {
  std::vector<std::byte> bytes(to_size(t.info.elements()) * sizeof(V));
  std::vector<float> block;
  for (const Exported::Part& part : t.parts) {
    const PackedPlace place = packed_place(part.parameter);
    block.resize(to_size(place.block));
    Exported of{{t.info.name, "F32", part.parameter.shape}, part.stored, part.box};
    of.parameter = std::make_shared<Parameter>(part.parameter);
    put_packed<float>(values_of<float>(files, base, of), part.parameter, block);
    if (!place.last) continue;
    const std::vector<V> values(block.begin(), block.end());
    std::memcpy(bytes.data() + to_size(part.parameter.expert * place.block) * sizeof(V), values.data(),
                values.size() * sizeof(V));
  }
  return bytes;
}

// The bytes of the tensors, asked for in order: scales stand behind their weight.
class Conversion {
 public:
  // `base`: the files of a frozen model; null: the checkpoint has it.
  Conversion(CheckpointFiles& files, const BaseFiles* base, const std::vector<Exported>& tensors)
      : files_(files), base_(base), tensors_(tensors) {}

  std::vector<std::byte> operator()(std::size_t i) {
    const Exported& t = tensors_[i];
    if (t.scales) return bytes_of(scaled_.scale_inv);
    if (!t.parts.empty())
      return t.info.type == "F32" ? packed_bytes<float>(files_, base_, t) : packed_bytes<bf16>(files_, base_, t);
    const std::vector<float> values = whole(t);
    if (t.info.type == code_type) {
      scaled_ = block_scaled(t.info.name, values, t.info.shape[0], t.info.shape[1]);
      return bytes_of(scaled_.codes);
    }
    if (t.info.type == "F32") return bytes_of(values);
    return bytes_of(std::vector<bf16>(values.begin(), values.end()));
  }

 private:
  std::vector<float> whole(const Exported& t) {
    if (t.adapter.a.empty()) return values_of<float>(files_, base_, t);
    std::vector<double> sum = values_of<double>(files_, base_, t);
    merge(files_, t, sum);
    return {sum.begin(), sum.end()};
  }

  CheckpointFiles& files_;
  const BaseFiles* base_;
  const std::vector<Exported>& tensors_;
  BlockScaled scaled_;
};

}  // namespace

ExportType export_type(const std::string& word) {
  const auto found = std::ranges::find(export_type_words, word);
  if (found == export_type_words.end()) throw BadInput("--type " + word + ": legal are fp32, bf16 and fp8");
  return static_cast<ExportType>(found - export_type_words.begin());
}

ExportNotes export_hf(const std::string& checkpoint, const std::string& directory, ExportType type,
                      std::uint64_t most_file_bytes, bool optimizer, bool merge) {
  CheckpointFiles source(checkpoint);
  const Deck deck = read_deck(source.facts().deck, checkpoint + ": its deck", {}, Needs::model_only, DeckWriter::forge);
  const ModelSpec spec = resolve_model(deck.model);
  if (const auto obstacle = export_obstacle(spec.options, parameter_units(spec)); !obstacle.empty())
    throw BadInput("forge export: " + obstacle);
  const bool adapted = spec.options.adapter.on(), adapters = adapted && !merge;
  if (merge && !adapted)
    throw BadInput("forge export --merge: the deck of " + checkpoint +
                   " has no adapters; legal: without --merge, or a checkpoint of adapter.name = lora");
  if (adapters && type == ExportType::coded)
    throw BadInput("forge export: --type fp8 of adapters, whose matrices have no block scales; legal: fp32 | bf16");
  const bool coded = type == ExportType::coded;
  const TensorNames& names = tensor_names(spec.options.family);
  if (coded && (names.gpt2 || names.packed))
    throw BadInput(std::string("forge export: --type fp8: family ") + name_of(spec.options.family) +
                   " stores matrices (in, out), and no library has block scales of those; legal: fp32 | bf16");
  if (optimizer && names.packed)
    throw BadInput(std::string("forge export: --optimizer: family ") + name_of(spec.options.family) +
                   " has one tensor for the experts of a layer, whose state is not written; legal: without it");
  const std::vector<std::string> run = names_of_run(directory_of(checkpoint), "");
  check_export_directory(directory, run, deck.model, "forge export: --output");
  refuse_other_kind(directory, adapters);
  begin_export(directory, run);
  const std::unique_ptr<BaseFiles> base = merge ? BaseFiles::of(deck.model) : nullptr;
  if (optimizer) export_optimizer(checkpoint, directory, most_file_bytes);
  const std::vector<Exported> tensors = exported_tensors(spec, type, adapters);
  std::vector<TensorInfo> infos;
  for (const Exported& tensor : tensors) infos.push_back(tensor.info);
  write_tensor_directory({directory, adapters ? "adapter_model" : "model", most_file_bytes}, infos,
                         Conversion(source, base.get(), tensors));
  remove_tensor_files(directory, adapters ? "model" : "adapter_model");
  if (adapters) {
    write_text_file(directory + "/adapter_config.json", write_adapter_config(spec.options));
    return {true, "", peft_obstacle(spec.options)};
  }
  const CodedWeights weights = coded ? coded_weights(spec) : CodedWeights{};
  Deck resolved = deck;
  resolved.model = spec.options;
  const bool tokenizer = write_model_files(resolved, directory, type == ExportType::fp32 ? "float32" : "bfloat16",
                                           coded ? &weights : nullptr);
  return {tokenizer, merge && !base && deck.model.load_weights ? deck.model.hf : "", ""};
}

}  // namespace forge
