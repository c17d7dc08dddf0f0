#pragma once

#include <vector>

#include "nn/clipped_heads.plan.hpp"
#include "optim/update.hpp"

namespace forge {

// QK-clip (nn/clipped_heads.plan.hpp) of the weights that a rank updates, behind the update: the weights alone, not the
// optimizer's states. Nothing changes unless the step was finite.
template <class T>
class HeadClip {
 public:
  using A = acc_t<T>;
  // Its input and workspace: the step's largest logits of all layers and heads (layers, H), and space for their factors
  // (layers, 3 H); empty: nothing is clipped.
  struct Heads {
    View<A, 2> peaks, factors;
  };
  HeadClip(const ParameterStorage<T>& storage, const ModelSpec& spec, double most, const Heads& heads);

  void operator()(Stream& stream, const Update& update) const;

 private:
  // Elements that follow each other here and in the tensor; `first`: the first one's number there.
  struct Part {
    View<A, 1> master, gradient;
    View<T, 1> copy;  // empty where the types agree
    std::int64_t layer, first, columns;
    ClippedRows rows;
  };

  double most_;
  std::int64_t kv_heads_;
  Heads heads_;
  std::vector<Part> parts_;
};

// Factors by layer (rows): of each query head the factor of its query, then its γ, then of each key head the factor of
// its key.
template <class A>
void head_factors(Stream& stream, View<const A, 2> peaks, std::int64_t kv_heads, double most,
                  View<const StepScalars, 1> scalars, View<A, 2> factors);

// weights ← factor · weights, and their copy; updates, unless it is empty, += the change. `factors`: of the part's
// layer.
template <class T>
void scale_heads(Stream& stream, const ClippedRows& rows, std::int64_t first, std::int64_t columns,
                 View<const acc_t<T>, 1> factors, View<acc_t<T>, 1> weights, View<T, 1> copy,
                 View<acc_t<T>, 1> updates);

}  // namespace forge
