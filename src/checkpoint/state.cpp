#include "checkpoint/state.hpp"

#include "core/to_size.hpp"
#include "device/device_memory.hpp"

namespace forge {

void StateTensors::add(const StateTensor& without_pieces, StatePiece piece) {
  const auto [at, is_new] = numbers_.try_emplace(without_pieces.name, tensors_.size());
  if (is_new) tensors_.push_back(without_pieces);
  tensors_[at->second].pieces.push_back(std::move(piece));
}

std::size_t bytes_of(const std::vector<StateTensor>& tensors) {
  std::size_t bytes = 0;
  for (const StateTensor& tensor : tensors)
    for (const StatePiece& piece : tensor.pieces) bytes += to_size(piece.box.size()) * size_of(tensor.type);
  return bytes;
}

std::vector<StateTensor> copied_to_host(const std::vector<StateTensor>& tensors, Stream& stream,
                                        PinnedVector<std::byte>& memory) {
  memory.resize(bytes_of(tensors));
  std::vector<StateTensor> copies = tensors;
  std::byte* to = memory.data();
  for (StateTensor& tensor : copies)
    for (StatePiece& piece : tensor.pieces) {
      const std::size_t bytes = to_size(piece.box.size()) * size_of(tensor.type);
      copy_to_host(stream, to, piece.data, bytes);
      piece.data = to;
      to += bytes;
    }
  stream.synchronize();
  return copies;
}

}  // namespace forge
