#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "config/contents.hpp"
#include "config/file_handle.hpp"
#include "config/text.hpp"
#include "core/to_size.hpp"
#include "core/types.hpp"
#include "hf/json_input.hpp"
#include "hf/model_files.hpp"
#include "hf/safetensors.hpp"
#include "hf/tensor_info.hpp"

namespace forge {

using nlohmann::json;

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t most_header_bytes = 100'000'000;  // the format's own limit
constexpr std::size_t most_index_bytes = 64u << 20;
// A header is a map of maps of lists.
constexpr JsonLimits header_limits{3, 4'000'000};
constexpr JsonLimits index_limits{32, 4'000'000};
constexpr std::size_t most_rank = 64;

[[noreturn]] void refuse_tensor(const std::string& file, const std::string& name, const std::string& why) {
  throw BadInput(file + ": tensor " + shown(name) + ": " + why);
}

std::uint64_t unsigned_value(const json& value, const std::string& file, const std::string& name, const char* what) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{1} << 62)
    refuse_tensor(file, name, std::string(what) + " holds " + shown_json(value) + "; legal: integers, 0 to 2^62");
  return value.get<std::uint64_t>();
}

// A list of a tensor's entry.
const json& list_of(const json& entry, const char* key, const std::string& file, const std::string& name) {
  const auto at = entry.find(key);
  if (at == entry.end() || !at->is_array()) refuse_tensor(file, name, std::string(key) + " is missing or no list");
  return *at;
}

// One tensor of a header; `data` is where the tensors' bytes start.
TensorInfo read_entry(const json& entry, const std::string& name, const std::string& file, std::uint64_t data) {
  if (!entry.is_object()) refuse_tensor(file, name, "its header entry is no map");
  const auto type = entry.find("dtype");
  if (type == entry.end() || !type->is_string()) refuse_tensor(file, name, "dtype is missing or no text");
  TensorInfo tensor;
  tensor.name = name;
  tensor.type = type->get<std::string>();
  if (bits_of_type(tensor.type) == 0) refuse_tensor(file, name, "unknown dtype " + shown(tensor.type));
  const json& shape = list_of(entry, "shape", file, name);
  if (shape.size() > most_rank) refuse_tensor(file, name, "has " + std::to_string(shape.size()) + " dimensions");
  for (const auto& extent : shape)
    tensor.shape.push_back(static_cast<std::int64_t>(unsigned_value(extent, file, name, "shape")));
  const json& offsets = list_of(entry, "data_offsets", file, name);
  if (offsets.size() != 2) refuse_tensor(file, name, "data_offsets must hold two numbers");
  const std::uint64_t begin = unsigned_value(offsets[0], file, name, "data_offsets");
  const std::uint64_t end = unsigned_value(offsets[1], file, name, "data_offsets");
  const auto bytes = bytes_of(tensor.type, tensor.shape);
  if (!bytes) refuse_tensor(file, name, "its shape " + shape_text(tensor.shape) + " has no size in bytes");
  if (begin > end || end - begin != *bytes)
    refuse_tensor(file, name,
                  "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "] hold " +
                      (begin > end ? "less than nothing" : std::to_string(end - begin) + " bytes") + ", but " +
                      tensor.type + " " + shape_text(tensor.shape) + " takes " + std::to_string(*bytes));
  tensor.offset = data + begin;
  tensor.bytes = *bytes;
  return tensor;
}

struct Header {
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};

void read_metadata(const json& entry, const std::string& file, Header& header) {
  if (!entry.is_object()) throw BadInput(file + ": __metadata__ is no map");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) throw BadInput(file + ": __metadata__ " + shown(key) + " is no text");
    header.metadata[key] = value.get<std::string>();
  }
}

// The tensors must fill the file behind the header without gap or overlap.
void check_offsets(std::vector<TensorInfo>& tensors, const std::string& file, std::uint64_t data, std::uint64_t size) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  std::uint64_t end = data;
  for (const auto& tensor : tensors) {
    if (tensor.offset != end)
      refuse_tensor(file, tensor.name,
                    "starts at byte " + std::to_string(tensor.offset) + ", but the one before it ends at " +
                        std::to_string(end) + (tensor.offset < end ? " (they overlap)" : " (a gap)"));
    end += tensor.bytes;
    if (end > size)
      refuse_tensor(
          file, tensor.name,
          "ends at byte " + std::to_string(end) + ", but the file has " + std::to_string(size) + ": it is truncated");
  }
  if (end != size)
    throw BadInput(file + ": has " + std::to_string(size) + " bytes, but its tensors end at byte " +
                   std::to_string(end));
}

// Other things that downloads leave under a safetensors file's name. Its own header is JSON behind eight bytes of
// length.
void refuse_other_contents(const FileHandle& handle, const std::string& file, std::uint64_t size) {
  std::string begin(std::min<std::uint64_t>(size, 256), ' ');
  handle.read_at(0, begin.data(), begin.size());
  if (begin.size() > 8 && begin[8] == '{') return;
  if (const std::string what = known_foreign_contents(begin); !what.empty())
    throw BadInput(file + " is " + what + "; legal: a safetensors file");
}

Header read_header(const std::string& file) {
  const FileHandle handle = FileHandle::open_to_read(file, "safetensors file");
  const std::uint64_t size = handle.size();
  std::uint64_t length = 0;
  refuse_other_contents(handle, file, size);
  if (size < sizeof length)
    throw BadInput(file + ": has " + std::to_string(size) + " bytes; a safetensors file has at least 8");
  std::string head(std::min<std::uint64_t>(size, 512), '\0');
  handle.read_at(0, head.data(), head.size());
  std::memcpy(&length, head.data(), sizeof length);
  if (const std::string contents = known_foreign_contents(head);
      !contents.empty() && contents.find("safetensors") == std::string::npos)
    throw BadInput(file + ": is " + contents + "; legal: a safetensors file");
  if (length > size - sizeof length)
    throw BadInput(file + ": the header should take " + std::to_string(length) +
                   " bytes from byte 8, but the file has " + std::to_string(size) +
                   ": it is truncated, or no safetensors file");
  if (length > most_header_bytes)
    throw BadInput(file + ": the header takes " + std::to_string(length) + " bytes; legal: at most " +
                   std::to_string(most_header_bytes));
  std::string text(length, '\0');
  handle.read_at(sizeof length, text.data(), text.size());
  const json root = parse_json(text, file + ": header", header_limits);
  Header header;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__")
      read_metadata(entry, file, header);
    else
      header.tensors.push_back(read_entry(entry, name, file, sizeof length + length));
  }
  check_offsets(header.tensors, file, sizeof length + length, size);
  return header;
}

// A file name of an index may not lead out of the directory.
bool stays_below(const std::string& name) {
  const std::filesystem::path path(name);
  return !name.empty() && name.find('\0') == std::string::npos && path.is_relative() &&
         std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
}

// The files of an index, and the file that each tensor should stand in.
std::map<std::string, std::string> read_index(const std::string& file) {
  const json root = parse_json(read_text_file(file, most_index_bytes, "index"), file, index_limits);
  const auto map = root.find("weight_map");
  if (map == root.end() || !map->is_object()) throw BadInput(file + ": weight_map is missing or no map");
  std::map<std::string, std::string> tensors;
  for (const auto& [tensor, name] : map->items()) {
    if (!name.is_string() || !stays_below(name.get_ref<const std::string&>()))
      throw BadInput(file + ": weight_map " + shown(tensor) + " is " + shown_json(name) +
                     "; legal: the name of a file below the directory");
    tensors[tensor] = name.get<std::string>();
  }
  return tensors;
}

float from_half(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffu, sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  if (magnitude < 0x400u) return std::copysign(static_cast<float>(magnitude) * 0x1p-24f, sign ? -1.0f : 1.0f);
  // Exponents are biased by 15 there and by 127 here; all ones mean infinity or NaN in both.
  const std::uint32_t bits = magnitude < 0x7c00u ? (magnitude << 13) + (112u << 23) : (magnitude << 13) | 0x7f800000u;
  return std::bit_cast<float>(sign | bits);
}

template <class Stored, class Convert, class T>
void convert(const std::byte* from, std::span<T> out, Convert conversion) {
  for (T& value : out) {
    Stored stored;
    std::memcpy(&stored, from, sizeof stored);
    value = static_cast<T>(conversion(stored));
    from += sizeof stored;
  }
}

template <class T>
void convert_any(const std::string& type, const std::byte* from, std::span<T> out) {
  const auto same = [](auto x) { return x; };
  if (type == "F64") return convert<double>(from, out, same);
  if (type == "F32") return convert<float>(from, out, same);
  if (type == "BF16") return convert<bf16>(from, out, [](bf16 x) { return static_cast<float>(x); });
  convert<std::uint16_t>(from, out, from_half);
}

// Elements or bytes `first` … of a tensor that has `total`.
void check_range(const std::string& path, const TensorInfo& tensor, const char* what, std::int64_t first,
                 std::size_t count, std::uint64_t total) {
  if (first < 0 || static_cast<std::uint64_t>(first) > total || count > total - static_cast<std::uint64_t>(first))
    refuse_tensor(path, tensor.name,
                  std::string(what) + " " + std::to_string(first) + " to " +
                      std::to_string(first + static_cast<std::int64_t>(count)) + " of its " + std::to_string(total));
}

template <class T>
void read_converted(const std::string& path, const TensorInfo& tensor, std::span<T> out, std::int64_t first) {
  static constexpr std::array readable = {"F64", "F32", "BF16", "F16"};
  if (std::find(readable.begin(), readable.end(), tensor.type) == readable.end())
    refuse_tensor(path, tensor.name, "dtype " + tensor.type + "; legal: F64 | F32 | BF16 | F16");
  check_range(path, tensor, "elements", first, out.size(), static_cast<std::uint64_t>(tensor.elements()));
  const FileHandle file = FileHandle::open_to_read(path, "safetensors file");
  const std::size_t element = to_size(bits_of_type(tensor.type)) / 8;
  constexpr std::size_t chunk = 1 << 17;
  std::vector<std::byte> buffer(std::min(out.size(), chunk) * element);
  for (std::size_t at = 0; at < out.size(); at += chunk) {
    const std::size_t n = std::min(chunk, out.size() - at);
    file.read_at(tensor.offset + (static_cast<std::uint64_t>(first) + at) * element, buffer.data(), n * element);
    convert_any(tensor.type, buffer.data(), out.subspan(at, n));
  }
}

}  // namespace

TensorFiles TensorFiles::open(const std::string& path, const std::string& stem) {
  TensorFiles result;
  const auto add_file = [&](const std::string& file) {
    Header header = read_header(file);
    if (result.files_.empty()) result.metadata_ = std::move(header.metadata);
    for (auto& tensor : header.tensors) tensor.file = static_cast<int>(result.files_.size());
    result.files_.push_back(file);
    return std::move(header.tensors);
  };
  std::error_code ignored;
  const bool directory = std::filesystem::is_directory(path, ignored);
  const std::string name = stem + ".safetensors", index_name = name + ".index.json";
  const std::string single = directory ? path + "/" + name : path, index = path + "/" + index_name;
  if (!directory || std::filesystem::exists(single, ignored)) {
    for (auto& tensor : add_file(single)) result.tensors_.emplace(tensor.name, std::move(tensor));
    return result;
  }
  if (!std::filesystem::exists(index, ignored)) {
    const std::string others = stem == "model" ? other_weights(path) : "";
    throw BadInput(path + " has neither " + name + " nor " + index_name + (others.empty() ? "" : ", " + others));
  }
  const auto wanted = read_index(index);
  std::map<std::string, bool> seen;
  for (const auto& [unused, file] : wanted) seen[file] = false;
  for (const auto& [file, unused] : seen)
    for (auto& tensor : add_file(path + "/" + file)) {
      const auto at = wanted.find(tensor.name);
      if (at != wanted.end() && at->second == file) result.tensors_.emplace(tensor.name, std::move(tensor));
    }
  for (const auto& [tensor, file] : wanted)
    if (!result.tensors_.count(tensor)) refuse_tensor(path + "/" + file, tensor, "missing, but the index has it here");
  return result;
}

const TensorInfo* TensorFiles::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors_) result.push_back(name);
  return result;
}

void TensorFiles::read(const TensorInfo& tensor, std::span<double> out, std::int64_t first) const {
  read_converted(file_of(tensor), tensor, out, first);
}

void TensorFiles::read(const TensorInfo& tensor, std::span<float> out, std::int64_t first) const {
  read_converted(file_of(tensor), tensor, out, first);
}

void TensorFiles::read_bytes(const TensorInfo& tensor, std::span<std::byte> out, std::int64_t first) const {
  const std::string& path = file_of(tensor);
  check_range(path, tensor, "bytes", first, out.size(), tensor.bytes);
  FileHandle::open_to_read(path, "safetensors file")
      .read_at(tensor.offset + static_cast<std::uint64_t>(first), out.data(), out.size());
}

}  // namespace forge
