#pragma once

#include <vector>

#include "device/arena.hpp"
#include "model/parameters.hpp"
#include "tensor/view.hpp"

namespace forge {

// What of the parameters a run keeps.
struct StorageKind {
  bool gradients = true;
  bool moments = true;
};

// The flat buffers of one unit. S = acc_t<T> stores master weights and gradients; moments have the type of the run.
template <class T>
struct UnitStorage {
  View<acc_t<T>, 1> parameter;  // master weights
  View<acc_t<T>, 1> gradient;
  View<T, 1> copy;    // compute copy; the master weights themselves where the types agree
  void* m = nullptr;  // Adam's moments, of Precision::moment
  void* v = nullptr;
};

// All units of a rank, allocated once. Zero at the start.
template <class T>
class ParameterStorage {
 public:
  ParameterStorage(Arena& arena, Stream& stream, const std::vector<Unit>& units, const Precision& precision,
                   StorageKind kind);

  const std::vector<Unit>& units() const { return units_; }
  const UnitStorage<T>& unit(std::size_t i) const { return storage_[i]; }
  std::size_t size() const { return storage_.size(); }
  const Precision& precision() const { return precision_; }

  // master(parameter p of unit u): its elements, for loading and saving.
  View<acc_t<T>, 1> master(std::size_t u, const Parameter& p) const;
  View<acc_t<T>, 1> gradient(std::size_t u, const Parameter& p) const;

  void zero_gradients(Stream& stream);
  // Draws the initial values of every parameter (host work, then one copy per unit).
  void initialise(Stream& stream, std::uint64_t seed);
  // Makes the compute copies from the master weights.
  void refresh_copies(Stream& stream);

 private:
  std::vector<Unit> units_;
  std::vector<UnitStorage<T>> storage_;
  Precision precision_;
};

}  // namespace forge
