#pragma once

#include <span>
#include <vector>

#include "comm/mesh.hpp"
#include "device/readback.hpp"
#include "layout/row_share.hpp"
#include "nn/context.hpp"
#include "train/metrics.hpp"

namespace forge {

// Sums of a step, (layers, E + router_sum_count), and biases, (layers, E), on the host; empty where there are none.
template <class A>
struct RouterReading {
  std::span<const double> sums;
  std::span<const A> bias;
};

// The routers' state of a run: their biases, and the sums of a step, which every rank has for all layers once reduced.
// Does nothing for a model without experts.
template <class T>
class Routers {
 public:
  using A = acc_t<T>;
  Routers(Stream& stream, const BufferContext& context, const RowShare& rows, const RouterState<T>& state);

  // Scales of a step's losses; scopes (sequences or microbatches) and documents' tokens of the step over all ranks.
  RouterScales scales(double scopes, double tokens) const;
  void start_step(Stream& stream);
  // Sums over all ranks; every rank calls it.
  void reduce(Stream& stream, Communicator& all);
  // bias += rate · sign(mean load − load); not after a step that was not finite.
  void update_biases(Stream& stream);
  // Copies the reading to the host: reports() takes it once the stream has been waited for.
  RouterReading<A> copy(Stream& stream, Readback& readback) const;
  // Reports on the layers with experts, in order.
  std::vector<RouterReport> reports(const RouterReading<A>& read, double scopes, double tokens) const;
  // The routers' part of total_loss.
  double loss(const std::vector<RouterReport>& reports) const;

  // Biases of all layers, (layers, E) in one line; empty: the model has none. For files.
  std::vector<double> read_biases(Stream& stream) const;
  void set_biases(Stream& stream, const std::vector<double>& values);
  View<A, 2> biases() const { return state_.bias; }  // (layers, E) of all layers, on every rank

 private:
  bool any() const { return spec_.E() > 0; }

  ModelSpec spec_;
  RouterState<T> state_;
};

}  // namespace forge
