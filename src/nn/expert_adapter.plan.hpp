#pragma once

#include <array>

#include "nn/adapter.plan.hpp"

namespace forge {

// The pure half of nn/expert_adapter.hpp: adapters of experts, each of which has its own A(r, K) and B(N, r) beside its
// W(N, K): y = W x + s B A x. Of a rank's E / ep experts the A stand one behind the other, and so do the B of each
// tensor; of gate and up, an expert's two A stand one below the other. etp splits the B of gate and up by rows and the
// A of down by columns; the A of gate and up and the B of down are whole on each of its ranks, whose gradients are
// parts of a sum, which step_reductions() of layout/reductions takes. `product`: expert_gate_up or expert_down.
template <class P>
struct ExpertLowRank {
  View<P, 3> a;                 // (E / ep, n r, K)
  std::array<View<P, 3>, 2> b;  // (E / ep, N, r) of those of gate and up that have one, in their order; or of down

  void list(ParameterLister& l, BlockProduct product);
};

// u = s x Aᵀ of experts' rows, which forward saves for the gradient of B, or its gradient, which lives within B.
template <class T>
struct ExpertLowRows {
  View<T, 2> u;  // (rows of a round, n r)

  // The first ones.
  View<T, 2> of(std::int64_t rows) const { return u.empty() ? u : u.slice(0, rows); }
  void list(BufferLister& l, BlockProduct product, std::int64_t rows) {
    if (const std::int64_t columns = low_columns(l.spec, product); columns > 0)
      l.save(u, "experts' low-rank rows", rows, columns, l.B);
  }
  void list_gradient(BufferLister& l, BlockProduct product, std::int64_t rows) {
    if (const std::int64_t columns = low_columns(l.spec, product); columns > 0)
      l.add(u, "gradient of experts' low-rank rows", rows, columns);
  }
};

// Forward, B and W of the adapters of a product of so many rows.
void list_expert_adapter(Segments& list, BlockProduct product, ProductOf of, std::int64_t rows);
// x Aᵀ alone, which B makes anew where forward's isn't there.
void list_expert_low_rows(Segments& list, BlockProduct product, std::int64_t rows);

}  // namespace forge
