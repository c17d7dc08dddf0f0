#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.hpp"
#include "core/heartbeat.hpp"
#include "device/device_memory.hpp"
#include "parallel/storage.hpp"

namespace forge {

enum class TensorSource { parameters, gradients };

// Brings whole tensors to the first rank's host, one at a time and in pieces, through the ranks' hosts: it takes no
// memory of devices. For files of people's own tools, not for checkpoints. All ranks call it for the same tensors in
// the same order.
template <class T>
class WholeTensors {
 public:
  using A = acc_t<T>;
  static constexpr std::int64_t most_elements = 1 << 24;
  // The heartbeat, if any, beats behind each piece, which has `piece_elements` of the tensor.
  WholeTensors(const ParameterStorage<T>& storage, Mesh& mesh, Heartbeat* heartbeat = nullptr,
               std::int64_t piece_elements = most_elements)
      : storage_(storage), mesh_(mesh), heartbeat_(heartbeat), piece_elements_(piece_elements) {}

  // Called on all ranks before each piece: may throw on all of them, where their user breaks off.
  void set_pause(std::function<void()> pause) { pause_ = std::move(pause); }
  bool receives() const { return mesh_.rank() == 0; }
  Heartbeat* heartbeat() const { return heartbeat_; }
  // All elements of a parameter of a unit of the whole model, row-major; empty where nothing is received.
  std::vector<A> collect(const Unit& unit, std::size_t parameter, TensorSource source, Stream& stream);

 private:
  struct Piece {
    std::int64_t state_begin, global, count;  // in the unit's state, in the tensor
  };
  // The number of the rank's own unit; the number of its units: it has none.
  std::size_t index_of(const Unit& unit) const;
  std::vector<Piece> pieces_of(const Unit& unit, std::size_t parameter) const;
  static std::vector<Piece> pieces_within(const std::vector<Piece>& pieces, const Range& elements);
  std::string packed(const std::vector<Piece>& pieces, std::size_t unit, TensorSource source, Stream& stream) const;

  static std::int64_t place(const std::string& text, const Range& range, std::vector<A>& whole);

  const ParameterStorage<T>& storage_;
  Mesh& mesh_;
  Heartbeat* heartbeat_;
  std::int64_t piece_elements_;
  std::function<void()> pause_;
};

// The whole model's weights on the first rank, for generation; empty on the others. All ranks call it.
template <class T>
struct WholeWeights {
  WholeWeights(const ModelSpec& spec, WholeTensors<T>& tensors, Stream& stream);
  std::vector<LocalUnit> units;
  std::vector<Buffer> buffers;
  std::vector<const T*> weights;  // by unit
};

}  // namespace forge
