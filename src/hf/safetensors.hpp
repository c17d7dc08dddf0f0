#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/heartbeat.hpp"
#include "core/to_size.hpp"

namespace forge {

// Files of named tensors (https://huggingface.co/docs/safetensors): eight bytes that give the header's length, a JSON
// header, the tensors' bytes, little-endian and row-major.

struct TensorInfo {
  std::string name;
  std::string type;                 // as the header spells it: "F64", "F32", "BF16", "F16", "I64", ...
  std::vector<std::int64_t> shape;  // empty = a scalar
  std::uint64_t offset = 0;         // of its first byte in the file
  std::uint64_t bytes = 0;
  int file = 0;  // which of TensorFiles' files

  std::int64_t elements() const;
};

// "[3, 4]".
std::string shape_text(const std::vector<std::int64_t>& shape);

// Bits of an element of a safetensors type, 0 when the format has no such type.
int bits_of_type(const std::string& type);

// Bytes of a tensor; nothing when an extent is negative, the product passes 63 bits, or a byte is not full.
std::optional<std::uint64_t> bytes_of(const std::string& type, const std::vector<std::int64_t>& shape);

// The tensors of one untrusted file, or of the files of a directory. Holds headers only: a read brings one part of a
// tensor into memory. Reads may come from several threads.
class TensorFiles {
 public:
  // `path` is a directory with <stem>.safetensors or <stem>.safetensors.index.json, or a file. Throws one BadInput,
  // naming file, tensor and byte, for anything that isn't as the format wants it: a header longer than the file (a
  // truncated file), JSON beyond its limits, an unknown type, a shape whose bytes overflow or don't fit its offsets,
  // tensors that overlap or leave gaps, bytes left over, a file of the index outside the directory or without its
  // tensor.
  static TensorFiles open(const std::string& path, const std::string& stem = "model");

  // nullptr when there is no such tensor.
  const TensorInfo* find(const std::string& name) const;
  std::vector<std::string> names() const;
  // The file that a tensor stands in.
  const std::string& file_of(const TensorInfo& tensor) const { return files_[to_size(tensor.file)]; }
  // The header's __metadata__, of the first file.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // out.size() elements of a tensor from its element `first`, converted from F64, F32, BF16 or F16. Throws BadInput for
  // any other type, a range beyond the tensor, or a file that has become shorter; IoFailed when reading fails.
  void read(const TensorInfo& tensor, std::span<double> out, std::int64_t first = 0) const;
  void read(const TensorInfo& tensor, std::span<float> out, std::int64_t first = 0) const;
  // Bytes of a tensor, as the file has them, from its byte `first`.
  void read_bytes(const TensorInfo& tensor, std::span<std::byte> out, std::int64_t first) const;

 private:
  std::vector<std::string> files_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes one file, tensor by tensor: an OutputFile, which takes its name in finish().
class SafetensorsWriter {
 public:
  // Tensors need name, type and shape; the others are filled in. transformers wants the metadata {"format": "pt"}.
  SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  // Removes an unfinished file.
  ~SafetensorsWriter();

  // Puts bytes at `offset` within a tensor; in any order, each byte once. Throws IoFailed when writing fails.
  void write(const std::string& name, std::span<const std::byte> bytes, std::uint64_t offset = 0);
  // Forces the file to the disk and gives it its name. Every byte of every tensor must have been written. The
  // heartbeat, if any, beats behind parts of it.
  void finish(Heartbeat* heartbeat = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace forge
