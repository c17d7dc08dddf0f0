#include "checkpoint/export_hf.hpp"

#include <cstring>
#include <filesystem>
#include <span>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/storage_state.hpp"
#include "config/read.hpp"
#include "config/text.hpp"
#include "core/to_size.hpp"
#include "hf/config.hpp"
#include "hf/tensor_directory.hpp"
#include "model/parameters.hpp"
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
};

std::vector<Exported> exported_tensors(const ModelSpec& spec, DType type) {
  std::vector<Exported> tensors;
  const std::string type_name = type == DType::bf16 ? "BF16" : "F32";
  for (const Unit& unit : parameter_units(spec))
    for (const Parameter& p : unit.parameters) {
      Exported t;
      t.info.name = p.hf_name;
      t.info.type = type_name;
      t.info.shape = p.hf_transposed ? Extents{p.shape[1], p.shape[0]} : p.shape;
      t.transposed = p.hf_transposed;
      const TensorPlace place = place_of(p, spec.E());
      t.stored = "parameters/" + place.name;
      t.box = place.box({Extents(p.shape.size(), 0), p.shape});
      tensors.push_back(t);
    }
  for (const RouterBias& bias : router_biases(spec)) {
    Exported t;
    t.info.name = bias.hf_name;
    t.info.type = "F32";  // as transformers keeps it
    t.info.shape = {spec.E()};
    t.stored = "state/" + bias.name;
    t.box = {{0}, {spec.E()}};
    tensors.push_back(t);
  }
  return tensors;
}

std::size_t element_size(const TensorInfo& info) {
  return info.type == "BF16" ? 2 : 4;
}

double value_at(const std::vector<std::byte>& bytes, std::size_t element, DType type) {
  if (type == DType::f64) {
    double value;
    std::memcpy(&value, bytes.data() + element * 8, 8);
    return value;
  }
  float value;
  std::memcpy(&value, bytes.data() + element * 4, 4);
  return value;
}

// The tensor's bytes as the file has them.
std::vector<std::byte> converted(CheckpointFiles& files, const Exported& t) {
  const StoredTensor* stored = files.find(t.stored);
  if (!stored) throw BadCheckpoint(files.directory() + " has no tensor " + t.stored);
  if (stored->type != DType::f32 && stored->type != DType::f64)
    throw BadCheckpoint(files.directory() + ": tensor " + t.stored + " is neither fp32 nor fp64");
  std::vector<std::byte> bytes(to_size(t.box.size()) * size_of(stored->type));
  files.read({{t.stored, stored->type, stored->shape, 0, {{t.box, bytes.data()}}}});
  const std::size_t n = to_size(t.box.size()), size = element_size(t.info);
  const std::size_t columns = t.transposed ? to_size(t.info.shape[1]) : n,
                    rows = t.transposed ? to_size(t.info.shape[0]) : 1;
  std::vector<std::byte> out(n * size);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      const double value = value_at(bytes, t.transposed ? j * rows + i : j, stored->type);
      std::byte* to = out.data() + (i * columns + j) * size;
      if (size == 2) {
        const bf16 rounded(value);
        std::memcpy(to, &rounded, 2);
      } else {
        const auto single = static_cast<float>(value);
        std::memcpy(to, &single, 4);
      }
    }
  return out;
}

}  // namespace

void copy_tokenizer(const ModelDeck& model, const std::string& directory) {
  static constexpr const char* names[] = {"tokenizer.json",
                                          "tokenizer.model",
                                          "tokenizer_config.json",
                                          "vocab.json",
                                          "merges.txt",
                                          "added_tokens.json",
                                          "chat_template.jinja",
                                          "special_tokens_map.json",
                                          "generation_config.json"};
  std::error_code error;
  const auto copy = [&](const fs::path& from) {
    const fs::path to = fs::path(directory) / from.filename();
    if (!fs::is_regular_file(from, error) || fs::equivalent(from, to, error)) return;
    const std::string text = read_text_file(from.string(), std::size_t{1} << 30, "the tokenizer");
    write_text_file(to.string(), text);
  };
  const std::string source = model.tokenizer.empty() ? model.hf : model.tokenizer;
  if (source.empty()) return;
  if (!fs::is_directory(source, error)) return copy(source);
  for (const char* name : names) copy(fs::path(source) / name);
  for (const auto& entry : fs::directory_iterator(source, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".tiktoken") || name.ends_with(".tiktoken.pattern")) copy(entry.path());
  }
}

void export_hf(const std::string& checkpoint, const std::string& directory, DType type, std::uint64_t most_file_bytes) {
  CheckpointFiles source(checkpoint);
  const Deck deck = read_deck(source.facts().deck, checkpoint + ": its deck", {}, Needs::model_only);
  const ModelSpec spec = resolve_model(deck.model);
  if (const auto obstacle = hf_obstacle(spec.options); !obstacle.empty()) throw BadInput("forge export: " + obstacle);
  const std::vector<Exported> tensors = exported_tensors(spec, type);
  std::vector<TensorInfo> infos;
  for (const Exported& tensor : tensors) infos.push_back(tensor.info);
  write_tensor_directory({directory, "model", most_file_bytes}, infos,
                         [&](std::size_t i) { return converted(source, tensors[i]); });
  copy_tokenizer(deck.model, directory);
  write_text_file(directory + "/config.json", write_hf_config(spec.options));
}

}  // namespace forge
