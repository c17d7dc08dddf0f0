#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "config/output_file.hpp"
#include "core/error.hpp"
#include "hf/safetensors.hpp"

namespace forge {

namespace {

using Json = nlohmann::ordered_json;

// The widest types come first, so that every tensor starts at a multiple of its element's size.
std::vector<std::size_t> file_order(const std::vector<TensorInfo>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bits_of_type(tensors[a].type) > bits_of_type(tensors[b].type);
  });
  return order;
}

// The header's text, padded with spaces to a multiple of eight bytes; fills in the tensors' sizes, and their offsets
// from the start of the data.
std::string make_header(std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;
  for (const auto i : file_order(tensors)) {
    TensorInfo& tensor = tensors[i];
    const auto bytes = bytes_of(tensor.type, tensor.shape);
    if (bits_of_type(tensor.type) == 0 || !bytes || header.contains(tensor.name))
      throw Error("safetensors: tensor " + tensor.name + " of type " + tensor.type + " and shape " +
                  shape_text(tensor.shape) + " can't be written, or has a name twice");
    tensor.bytes = *bytes;
    tensor.offset = end;
    end += *bytes;
    header[tensor.name] = {{"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {tensor.offset, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

struct SafetensorsWriter::State {
  struct Tensor {
    TensorInfo info;
    std::uint64_t written = 0;  // bytes
  };

  OutputFile file;
  std::map<std::string, Tensor> tensors;
};

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  const std::string header = make_header(tensors, metadata);
  state_.reset(new State{OutputFile(path), {}});
  const FileHandle& file = state_->file.file();
  const std::uint64_t length = header.size(), data = sizeof length + length;
  file.write_at(0, &length, sizeof length);
  file.write_at(sizeof length, header.data(), header.size());
  std::uint64_t end = data;
  for (auto& tensor : tensors) {
    tensor.offset += data;
    end = std::max(end, tensor.offset + tensor.bytes);
    const std::string name = tensor.name;
    state_->tensors[name] = {std::move(tensor), 0};
  }
  file.resize(end);
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(const std::string& name, std::span<const std::byte> bytes, std::uint64_t offset) {
  require(state_ != nullptr, "a finished safetensors file takes no tensor");
  const auto at = state_->tensors.find(name);
  if (at == state_->tensors.end()) throw Error("safetensors: " + state_->file.path() + " has no tensor " + name);
  State::Tensor& tensor = at->second;
  if (offset > tensor.info.bytes || bytes.size() > tensor.info.bytes - offset)
    throw Error("safetensors: " + std::to_string(bytes.size()) + " bytes at byte " + std::to_string(offset) +
                " of tensor " + name + ", which has " + std::to_string(tensor.info.bytes));
  state_->file.file().write_at(tensor.info.offset + offset, bytes.data(), bytes.size());
  tensor.written += bytes.size();
}

void SafetensorsWriter::finish(Heartbeat* heartbeat) {
  require(state_ != nullptr, "a safetensors file is finished once");
  for (const auto& [name, tensor] : state_->tensors)
    if (tensor.written != tensor.info.bytes)
      throw Error("safetensors: " + std::to_string(tensor.written) + " of the " + std::to_string(tensor.info.bytes) +
                  " bytes of tensor " + name + " were written to " + state_->file.path());
  if (heartbeat) state_->file.file().write_back(*heartbeat);
  state_->file.commit();
  state_.reset();
}

}  // namespace forge
