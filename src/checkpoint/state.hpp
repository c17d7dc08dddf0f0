#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/types.hpp"
#include "device/pinned.hpp"
#include "device/stream.hpp"
#include "layout/boxes.hpp"

namespace forge {

// A part of a tensor in a rank's device memory, or in the host's: row-major, without a gap.
struct StatePiece {
  Box box;
  std::byte* data = nullptr;
};

// A rank's part of a tensor, to write or to read.
struct StateTensor {
  std::string name;  // with its group: "parameters/layers.0.norm1"
  DType type = DType::f32;
  Extents shape;
  std::int64_t strip =
      0;  // columns that stand together in files, for tensors that layouts cut by columns; 0: whole rows
  std::vector<StatePiece> pieces;
};

// Gathers pieces by tensor.
class StateTensors {
 public:
  void add(const StateTensor& without_pieces, StatePiece piece);
  std::vector<StateTensor> take() { return std::move(tensors_); }

 private:
  std::vector<StateTensor> tensors_;
  std::map<std::string, std::size_t> numbers_;
};

// The state's bytes on the host, so that training can go on while they are written. The result's pieces point into
// `memory`.
std::vector<StateTensor> copied_to_host(const std::vector<StateTensor>& tensors, Stream& stream,
                                        PinnedVector<std::byte>& memory);

std::size_t bytes_of(const std::vector<StateTensor>& tensors);

}  // namespace forge
