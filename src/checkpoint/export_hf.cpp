#include "checkpoint/export_hf.hpp"

#include <cstring>
#include <filesystem>
#include <span>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/storage_state.hpp"
#include "config/file_handle.hpp"
#include "config/read.hpp"
#include "config/text.hpp"
#include "core/to_size.hpp"
#include "hf/config.hpp"
#include "hf/safetensors.hpp"
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

// Which file each tensor goes to: in order, a new one where the next tensor would make it too large.
std::vector<std::size_t> files_of(const std::vector<Exported>& tensors, std::uint64_t most) {
  std::vector<std::size_t> files;
  std::uint64_t bytes = 0;
  std::size_t file = 0;
  for (const Exported& t : tensors) {
    const std::uint64_t size = static_cast<std::uint64_t>(t.info.elements()) * element_size(t.info);
    if (bytes > 0 && bytes + size > most) {
      ++file;
      bytes = 0;
    }
    bytes += size;
    files.push_back(file);
  }
  return files;
}

std::string file_name(std::size_t file, std::size_t count) {
  if (count == 1) return "model.safetensors";
  const auto digits = [](std::size_t n) {
    const std::string text = std::to_string(n);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return "model-" + digits(file + 1) + "-of-" + digits(count) + ".safetensors";
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

void write_text(const fs::path& path, const std::string& text) {
  FileHandle file = FileHandle::open_to_write(path.string() + ".partial");
  file.write_at(0, text.data(), text.size());
  file.commit_as(path.string());
}

std::string index_text(const std::vector<Exported>& tensors, const std::vector<std::size_t>& files) {
  std::uint64_t total = 0;
  std::string map;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    total += static_cast<std::uint64_t>(tensors[i].info.elements()) * element_size(tensors[i].info);
    map +=
        (i ? ",\n    \"" : "    \"") + tensors[i].info.name + "\": \"" + file_name(files[i], files.back() + 1) + "\"";
  }
  return "{\n  \"metadata\": {\"total_size\": " + std::to_string(total) + "},\n  \"weight_map\": {\n" + map +
         "\n  }\n}\n";
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
    write_text(to, text);
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
  try {
    fs::create_directories(directory);
  } catch (const fs::filesystem_error& error) {
    throw IoFailed(directory + ": " + error.code().message());
  }
  const std::vector<Exported> tensors = exported_tensors(spec, type);
  const std::vector<std::size_t> files = files_of(tensors, most_file_bytes);
  const std::size_t count = files.back() + 1;
  for (std::size_t f = 0, begin = 0; f < count; ++f) {
    std::size_t end = begin;
    std::vector<TensorInfo> infos;
    for (; end < tensors.size() && files[end] == f; ++end) infos.push_back(tensors[end].info);
    SafetensorsWriter writer(directory + "/" + file_name(f, count), infos, {{"format", "pt"}});
    for (; begin < end; ++begin) writer.write(tensors[begin].info.name, converted(source, tensors[begin]));
    writer.finish();
  }
  if (count > 1) write_text(fs::path(directory) / "model.safetensors.index.json", index_text(tensors, files));
  copy_tokenizer(deck.model, directory);
  write_text(fs::path(directory) / "config.json", write_hf_config(spec.options));
}

}  // namespace forge
