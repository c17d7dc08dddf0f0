#pragma once

#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "core/macros.hpp"
#include "kernels/attention/attention.hpp"

namespace forge {

// The largest head size of q, k and of v, o.
inline constexpr std::int64_t attention_largest_head = 256;

// Sizes of one call, letters as in attention.hpp.
struct AttentionSizes {
  std::int64_t B, Tq, Tk, H, K, D, Dv;

  // Heads of q that share one head of k and v.
  FORGE_HD std::int64_t group() const { return H / K; }
};

// Checks that shape, mask and views fit together and returns the sizes.
template <class T>
AttentionSizes attention_sizes(const AttentionShape& shape, const AttentionMask& mask, const View<const T, 3>& q,
                               const View<const T, 3>& k, const View<const T, 3>& v) {
  const AttentionSizes n{shape.sequences, shape.query_rows, shape.key_rows, q.extent(1),
                         k.extent(1),     q.extent(2),      v.extent(2)};
  const std::int64_t rows_q = n.B * n.Tq, rows_k = n.B * n.Tk;
  require(q.rows() == rows_q && k.rows() == rows_k && v.rows() == rows_k, "attention: rows of q, k or v");
  require(n.K > 0 && n.H % n.K == 0 && v.extent(1) == n.K, "attention: heads of q must be a multiple of those of k");
  require(k.extent(2) == n.D, "attention: q and k differ in head size");
  require(mask.position_q.rows() == rows_q && mask.position_k.rows() == rows_k, "attention: positions");
  const bool documents = !mask.document_q.empty();
  require(mask.document_q.rows() == (documents ? rows_q : 0) && mask.document_k.rows() == (documents ? rows_k : 0),
          "attention: documents");
  require(mask.window >= 0, "attention: negative window");
  require(shape.soft_cap >= 0, "attention: negative soft cap");
  require(shape.dropout >= 0 && shape.dropout < 1, "attention: dropout must be in [0, 1)");
  require(shape.dropout == 0 || shape.samples.rows() == rows_q, "attention: dropout needs the sample of each row");
  if (n.D < 1 || n.Dv < 1 || n.D > attention_largest_head || n.Dv > attention_largest_head)
    throw BadInput("attention: a head size of " + std::to_string(n.D < n.Dv ? n.Dv : n.D) + " is not supported; 1 to " +
                   std::to_string(attention_largest_head) + " are");
  return n;
}

template <class T, class A>
void check_attention_output(const AttentionSizes& n, const View<T, 3>& o, const View<A, 2>& lse,
                            const View<A, 2>& peak = {}) {
  require(peak.empty() || (peak.rows() == n.B * n.Tq && peak.extent(1) == n.H), "attention: shape of peak");
  require(o.rows() == n.B * n.Tq && o.extent(1) == n.H && o.extent(2) == n.Dv, "attention: shape of o");
  require(lse.rows() == n.B * n.Tq && lse.extent(1) == n.H, "attention: shape of lse");
}

template <class T, class A>
void check_attention_gradients(const AttentionSizes& n, const View<const T, 3>& d_o, const View<const A, 2>& lse,
                               const View<const A, 2>& delta, const View<T, 3>& d_q, const View<T, 3>& d_k,
                               const View<T, 3>& d_v, const View<A, 3>& sums) {
  check_attention_output(n, d_o, lse);
  require(delta.rows() == n.B * n.Tq && delta.extent(1) == n.H, "attention: shape of delta");
  require(d_q.rows() == n.B * n.Tq && d_q.extent(1) == n.H && d_q.extent(2) == n.D, "attention: shape of d_q");
  require(d_k.rows() == n.B * n.Tk && d_k.extent(1) == n.K && d_k.extent(2) == n.D, "attention: shape of d_k");
  require(d_v.rows() == n.B * n.Tk && d_v.extent(1) == n.K && d_v.extent(2) == n.Dv, "attention: shape of d_v");
  require(sums.rows() == n.B * n.Tq && sums.extent(1) == n.H && sums.extent(2) == n.D, "attention: shape of sums");
}

}  // namespace forge
