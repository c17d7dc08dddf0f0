#include "hf/model_files.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "config/path_hint.hpp"
#include "core/file_errors.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    names.insert(at->path().filename().string());
  return names;
}

bool is_part(const std::string& name) {
  return name.starts_with("model") && name.ends_with(".safetensors");
}

bool is_of_pytorch(const std::string& name) {
  return (name.starts_with("pytorch_model") && (name.ends_with(".bin") || name.ends_with(".bin.index.json"))) ||
         name.ends_with(".pth") || name.ends_with(".pt");
}

bool is_of_others(const std::string& name) {
  return name.ends_with(".gguf") || name.ends_with(".msgpack") || name == "tf_model.h5" || name.ends_with(".onnx");
}

// The first directory below that has a config.json, at most `depth` names away; "": none.
std::string model_below(const std::string& directory, int depth) {
  std::set<std::string> below;
  for (const std::string& name : names_in(directory)) {
    const std::string path = (fs::path(directory) / name).string();
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) continue;
    if (is_file(path + "/config.json")) return path;
    below.insert(path);
  }
  for (const std::string& path : below)
    if (const std::string found = depth > 1 ? model_below(path, depth - 1) : ""; !found.empty()) return found;
  return "";
}

}  // namespace

WeightFiles weight_files(const std::string& directory) {
  const std::set<std::string> names = names_in(directory);
  const auto any = [&](auto is) { return std::any_of(names.begin(), names.end(), is); };
  if (names.count("model.safetensors.index.json") || any(is_part)) return WeightFiles::safetensors;
  return any(is_of_pytorch) || any(is_of_others) ? WeightFiles::other : WeightFiles::none;
}

std::string other_weights(const std::string& directory) {
  const std::set<std::string> names = names_in(directory);
  if (const auto part = std::find_if(names.begin(), names.end(), is_part); part != names.end())
    return "but " + *part + ", a part of a model whose index is missing; legal: the whole directory (`hf download`)";
  if (const auto file = std::find_if(names.begin(), names.end(), is_of_pytorch); file != names.end())
    return "but " + *file +
           ", whose format may run any code and isn't read; legal: save it as safetensors, in Python: "
           "AutoModelForCausalLM.from_pretrained(\"" +
           directory + "\").save_pretrained(DIR, safe_serialization=True)";
  if (const auto file = std::find_if(names.begin(), names.end(), is_of_others); file != names.end())
    return "but " + *file + ", a format that isn't read; legal: the model's safetensors files";
  return "";
}

std::string not_a_model(const std::string& path) {
  std::error_code error;
  const std::string head = "model.hf = " + path;
  if (!fs::exists(path, error)) return head + ": No such file or directory" + path_hint(path, PathUse::model);
  if (!fs::is_directory(path, error)) {
    const std::string parent = fs::path(path).parent_path().string();
    return head + " is a file; legal: the directory with config.json and the safetensors files" +
           (fs::path(path).filename() == "config.json" || path.ends_with(".safetensors")
                ? ", here " + (parent.empty() ? "." : parent)
                : "");
  }
  if (is_file(path + "/config.json")) return "";
  const std::set<std::string> names = names_in(path);
  if (names.count("manifest.h5") || names.count("latest"))
    return head +
           " has no config.json: it holds checkpoints of forge; legal: checkpoint.model_from, or the directory that "
           "forge export makes of one";
  if (names.count("adapter_config.json"))
    return head +
           " has no config.json but adapter_config.json: an adapter of another model; legal: the model with the "
           "adapter merged into it, in Python: merge_and_unload() and save_pretrained()";
  const std::string below = model_below(path, 2);
  return head + " has no config.json; legal: a Hugging Face directory" +
         (below.empty() ? ", with config.json and safetensors files" : ", as " + below);
}

std::string lacking_for(const std::string& model_type) {
  static const std::vector<std::pair<const char*, const char*>> families{
      {"glm4", "which rotates neighbours in a part of each head"},
      {"gpt_neox", "which adds attention and feed-forward layer to one input"},
      {"phi", "which adds attention and feed-forward layer to one input"},
      {"gemma", "whose norms multiply by 1 + weight, with norms before the layers alone"},
      {"gemma2", "whose attention scores and logits have soft caps, and each second layer a window"},
      {"gemma4", "which has head sizes by layer, and embeddings of its layers"},
      {"qwen2_vl", "which sees images"},
      {"qwen2_5_vl", "which sees images"},
      {"kimi_k25", "which sees images"},
      {"llama4", "which sees images, and whose attention is cut in chunks"},
      {"deepseek_v32", "whose attention chooses keys by an indexer"},
      {"nemotron_h", "which has Mamba layers"},
      {"granitemoehybrid", "which has Mamba layers"},
      {"falcon_h1", "which has Mamba layers"},
      {"mamba", "which has Mamba layers"},
      {"mamba2", "which has Mamba layers"},
      {"lfm2", "which has gated short convolutions"},
      {"bert", "which reads in both directions"},
      {"t5", "which has an encoder"}};
  const auto found =
      std::find_if(families.begin(), families.end(), [&](const auto& f) { return f.first == model_type; });
  return found == families.end() ? "" : found->second;
}

}  // namespace forge
