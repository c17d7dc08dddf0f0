#include "hf/tensor_directory.hpp"

#include <algorithm>
#include <filesystem>

#include "config/text.hpp"
#include "core/error.hpp"

namespace forge {

namespace {

std::uint64_t size_of(const TensorInfo& tensor) {
  return *bytes_of(tensor.type, tensor.shape);
}

// Which file each tensor goes to: in order, a new one where the next tensor would make it too large.
std::vector<std::size_t> files_of(const std::vector<TensorInfo>& tensors, std::uint64_t most) {
  std::vector<std::size_t> files;
  std::uint64_t bytes = 0;
  std::size_t file = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::uint64_t size = size_of(tensor);
    if (bytes > 0 && bytes + size > most) {
      ++file;
      bytes = 0;
    }
    bytes += size;
    files.push_back(file);
  }
  return files;
}

std::string file_name(const std::string& stem, std::size_t file, std::size_t count) {
  if (count == 1) return stem + ".safetensors";
  const auto digits = [](std::size_t n) {
    const std::string text = std::to_string(n);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return stem + "-" + digits(file + 1) + "-of-" + digits(count) + ".safetensors";
}

std::string index_text(const std::string& stem, const std::vector<TensorInfo>& tensors,
                       const std::vector<std::size_t>& files) {
  std::uint64_t total = 0;
  std::string map;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    total += size_of(tensors[i]);
    map +=
        (i ? ",\n    \"" : "    \"") + tensors[i].name + "\": \"" + file_name(stem, files[i], files.back() + 1) + "\"";
  }
  return "{\n  \"metadata\": {\"total_size\": " + std::to_string(total) + "},\n  \"weight_map\": {\n" + map +
         "\n  }\n}\n";
}

// Whether a file is one that tensors of this stem stand in, or their index.
bool is_of_stem(const std::string& name, const std::string& stem) {
  if (name == stem + ".safetensors" || name == stem + ".safetensors.index.json") return true;
  const std::string pattern = stem + "-#-of-#.safetensors";
  std::size_t at = 0;
  for (const char expected : pattern) {
    const std::size_t first = at;
    if (expected == '#')
      while (at < name.size() && name[at] >= '0' && name[at] <= '9') ++at;
    else if (at < name.size() && name[at] == expected)
      ++at;
    if (at == first) return false;
  }
  return at == name.size();
}

// Files of an earlier model of the same stem, which readers would take in the place of this one or beside it.
void remove_files_but(const std::string& path, const std::string& stem, const std::vector<std::string>& written) {
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename();
    if (is_of_stem(name, stem) && std::find(written.begin(), written.end(), name) == written.end())
      std::filesystem::remove(entry.path());
  }
}

}  // namespace

void write_tensor_directory(const TensorDirectory& directory, const std::vector<TensorInfo>& tensors,
                            const std::function<std::vector<std::byte>(std::size_t)>& bytes_of) {
  namespace fs = std::filesystem;
  try {
    fs::create_directories(directory.path);
  } catch (const fs::filesystem_error& error) {
    throw IoFailed(directory.path + ": " + error.code().message());
  }
  const std::vector<std::size_t> files = files_of(tensors, directory.most_file_bytes);
  const std::size_t count = files.back() + 1;
  const std::string prefix = directory.path + "/";
  std::vector<std::string> written;
  for (std::size_t f = 0, begin = 0; f < count; ++f) {
    std::size_t end = begin;
    std::vector<TensorInfo> infos;
    for (; end < tensors.size() && files[end] == f; ++end) infos.push_back(tensors[end]);
    written.push_back(file_name(directory.stem, f, count));
    SafetensorsWriter writer(prefix + written.back(), infos, {{"format", "pt"}});
    for (; begin < end; ++begin) writer.write(tensors[begin].name, bytes_of(begin));
    writer.finish();
  }
  if (count > 1) {
    written.push_back(directory.stem + ".safetensors.index.json");
    write_text_file(prefix + written.back(), index_text(directory.stem, tensors, files));
  }
  try {
    remove_files_but(directory.path, directory.stem, written);
  } catch (const fs::filesystem_error& error) {
    throw IoFailed(directory.path + ": a file of an earlier model can't be removed: " + error.code().message());
  }
}

void remove_tensor_files(const std::string& path, const std::string& stem, const std::vector<std::string>& kept) {
  try {
    if (std::filesystem::is_directory(path)) remove_files_but(path, stem, kept);
  } catch (const std::filesystem::filesystem_error& error) {
    throw IoFailed(path + ": " + error.code().message());
  }
}

}  // namespace forge
