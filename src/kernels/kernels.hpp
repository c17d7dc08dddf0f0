#pragma once

#include <cstdint>

#include "core/partials.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

// Every kernel but the matrix products (gemm.hpp), attention (attention.hpp) and those of mixtures of experts alone
// (experts/expert_kernels.hpp), on one page. T is the compute type (double, float, bf16); A = acc_t<T> the type of
// statistics and of weight gradients (double, float, float). R = rows of activations, each with its own position,
// document and sample; letters as in docs/developer.md. All take a Stream, none allocates, none synchronises.
// "+=" marks an output that is added to.
// Results don't depend on the number of threads.

namespace forge {

enum class Fp8Format : std::uint8_t;  // config/fp8_format.hpp
struct NormalNumbers;                 // core/normal.hpp
struct UniformNumbers;                // core/normal.hpp

// ---- element-wise
// -----------------------------------------------------------------------------------------------------

// to = from, converted. Any pair of double, float, bf16.
template <class From, class To>
void convert(Stream&, View<const From, 1> from, View<To, 1> to);
// to = from, row by row; the pitches may differ.
template <class T>
void copy_rows(Stream&, View<const T, 2> from, View<T, 2> to);
// to = from, row by row, converted: T to T, T to A and A to T.
template <class From, class To>
void convert_rows(Stream&, View<const From, 2> from, View<To, 2> to);
// to(r, j) = number first + r·pitch + j, rounded to A, then to T.
template <class T>
void fill_normal(Stream&, const NormalNumbers& numbers, std::int64_t first, std::int64_t pitch, View<T, 2> to);
template <class T>
void fill_uniform(Stream&, const UniformNumbers& numbers, std::int64_t first, std::int64_t pitch, View<T, 2> to);
// y += x.
template <class T>
void add(Stream&, View<const T, 1> x, View<T, 1> y);
// y += x, row by row, in A; the pitches may differ.
template <class T>
void accumulate(Stream&, View<const T, 2> x, View<acc_t<T>, 2> y);
// x(R,N) += bias(N) in every row; X: T or A.
template <class T, class X>
void add_bias(Stream&, View<const T, 1> bias, View<X, 2> x);

// ---- blocks that ranks send to each other
// ---------------------------------------------------------------------------------------------------------

// from(R, n·w) has n groups of w = `width` columns; to(blocks·R, s·w) has s of them in each block. Place i of block p
// gets group (p·s + i)·n / (blocks·s), rounded down: where there are more places than groups, neighbours hold copies. n
// divides blocks·s. The pitches may differ.
template <class T>
void columns_to_blocks(Stream&, View<const T, 2> from, std::int64_t blocks, std::int64_t width, View<T, 2> to);
// The transpose: to's group g is the sum of the places that columns_to_blocks fills from it, in their order, in A.
template <class T>
void blocks_to_columns(Stream&, View<const T, 2> from, std::int64_t blocks, std::int64_t width, View<T, 2> to);
// from(outer·inner·r, w) is a matrix of outer x inner blocks of r rows, to its transpose:
//   block (j, i) of to = block (i, j) of from.
template <class T>
void transpose_blocks(Stream&, std::int64_t outer, std::int64_t inner, View<const T, 2> from, View<T, 2> to);

// ---- dropout
// ----------------------------------------------------------------------------------------------------------

// Dropout (Srivastava et al. 2014): an element is kept where uniform(key; sample, position, column) >= rate and divided
// by 1 − rate. Keyed by global sample and position, so that no layout changes the mask and backward draws it again.
struct Dropout {
  double rate = 0;  // 0: off
  std::uint64_t key = 0;
  View<const std::int64_t, 1> samples;    // (R) global sample index of each row
  View<const std::int32_t, 1> positions;  // (R)
  std::int64_t first = 0;                 // of a part of wider rows: the wide row's column in column 0
};
// y = dropout(x); x and y may be the same. The backward of dropout is dropout.
template <class T>
void dropout(Stream&, View<const T, 2> x, View<T, 2> y, Dropout how);
// out = residual + dropout(x), all (R,C); out may alias residual or x.
template <class T>
void residual_add(Stream&, View<const T, 2> residual, View<const T, 2> x, View<T, 2> out, Dropout how);

// ---- embedding
// --------------------------------------------------------------------------------------------------------

// out(R,C) = scale · table(V,C)[token] + positions_table(P,C)[position] (left out when empty). Token −1: another
// rank's, a zero row of the table.
template <class T>
void embedding_forward(Stream&, View<const std::int32_t, 1> tokens, View<const T, 2> table,
                       View<const std::int32_t, 1> positions, View<const T, 2> positions_table, View<T, 2> out,
                       double scale = 1);
// d_table(V,C)[index[r]] += scale · d_out(r,:). `order` lists the rows sorted by index, equal ones in row order: each
// table row is summed by one team in that order, without atomics. Rows of index −1 add nothing. Serves tokens and
// positions.
template <class T>
void embedding_backward(Stream&, View<const std::int32_t, 1> index, View<const std::int32_t, 1> order,
                        View<const T, 2> d_out, View<acc_t<T>, 2> d_table, double scale = 1);

// ---- largest magnitudes and codes of rows
// --------------------------------------------------------------------------------------------------------

// Where an activation's kernel leaves the codes of the rows that it writes, with the scale of the finite amax[0]:
// encode(row r · scale) from codes[r · pitch] on, and zeros up to the pitch, all of them 16-byte aligned. As by
// default: nowhere.
struct RowCodes {
  std::uint8_t* codes = nullptr;
  std::int64_t pitch = 0;
  const float* amax = nullptr;
  Fp8Format format{};
  bool exact = false;
};

// Where a kernel that writes rows leaves their largest magnitudes, of a sum and its norm the norm's; Inf where a number
// isn't finite. No other number is another for it. As by default: nowhere.
struct RowAmaxes {
  float* amax = nullptr;
  bool raises = false;  // row r raises the number of group (first + r) / each; else amax(R) has one for each row
  std::int64_t first = 0, each = 1;
  const std::int64_t* samples = nullptr;  // (R) rows of −1 are filler, which raises nothing; null: there is none
  RowCodes codes = {};
};

// ---- norms
// ------------------------------------------------------------------------------------------------------------

// y = w ⊙ x · rstd, rstd = 1/√(mean(x²) + ε)  (Zhang & Sennrich 2019). x, y: (R,C); w: (C); rstd: (R).
template <class T>
void rmsnorm_forward(Stream&, View<const T, 2> x, View<const T, 1> w, double epsilon, View<T, 2> y,
                     View<acc_t<T>, 1> rstd, const RowAmaxes& amax = {});
// h = residual + x, y = norm(h): the numbers of residual_add and rmsnorm_forward; h is not read again.
template <class T>
void residual_rmsnorm_forward(Stream&, View<const T, 2> residual, View<const T, 2> x, View<const T, 1> w,
                              double epsilon, View<T, 2> h, View<T, 2> y, View<acc_t<T>, 1> rstd,
                              const RowAmaxes& amax = {});
// dx = residual + ∂; residual (R,C) may be empty (zero); it and dy may alias dx. dw(C) += Σ_r dy · x · rstd. `partial`:
// norm_backward_chunks(R) x C values of workspace.
template <class T>
void rmsnorm_backward(Stream&, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                      View<const acc_t<T>, 1> rstd, View<const T, 2> residual, View<T, 2> dx, View<acc_t<T>, 2> partial,
                      View<acc_t<T>, 1> dw);
// y = w ⊙ (x − mean) · rstd + b, rstd = 1/√(var + ε)  (Ba et al. 2016).
template <class T>
void layernorm_forward(Stream&, View<const T, 2> x, View<const T, 1> w, View<const T, 1> b, double epsilon,
                       View<T, 2> y, View<acc_t<T>, 1> mean, View<acc_t<T>, 1> rstd, const RowAmaxes& amax = {});
template <class T>
void residual_layernorm_forward(Stream&, View<const T, 2> residual, View<const T, 2> x, View<const T, 1> w,
                                View<const T, 1> b, double epsilon, View<T, 2> h, View<T, 2> y, View<acc_t<T>, 1> mean,
                                View<acc_t<T>, 1> rstd, const RowAmaxes& amax = {});
// Like rmsnorm_backward; dw += Σ_r dy · (x − mean) · rstd, db += Σ_r dy. `partial`: 2 norm_backward_chunks(R) x C.
template <class T>
void layernorm_backward(Stream&, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                        View<const acc_t<T>, 1> mean, View<const acc_t<T>, 1> rstd, View<const T, 2> residual,
                        View<T, 2> dx, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw, View<acc_t<T>, 1> db);
// db(N) += Σ_r dy(r,:). `partial`: norm_partial_rows(R) x N.
template <class T>
void column_sum(Stream&, View<const T, 2> dy, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> db);

// The weights (D) of QK-norm: of the first heads of a row, the queries', and of those behind them.
template <class T>
struct HeadWeights {
  View<const T, 1> queries, keys;
  std::int64_t query_heads;

  FORGE_INLINE const T* of(std::int64_t head) const { return head < query_heads ? queries.data : keys.data; }
};
// QK-norm and rotation: RMSNorm of each head of x(R,n,D), whose first 2h entries are then rotated in halves, as
// `rotary` does it; no angles: not rotated. rstd(R,n). x and y have pitches (they lie in QKV buffers) and are apart.
template <class T>
void head_norm_forward(Stream&, View<const T, 3> x, const HeadWeights<T>& w, double epsilon,
                       View<const std::int32_t, 1> positions, View<const acc_t<T>, 2> cosine,
                       View<const acc_t<T>, 2> sine, View<T, 3> y, View<acc_t<T>, 2> rstd);
// d: the gradient of y, replaced by the gradient of x; turned back by the angles first, as `rotary` does it. With the
// gradient of the norm's output, dn: d_queries(D), d_keys(D) += Σ dn · x · rstd of their heads. `partial`:
// norm_backward_chunks(R) x D.
template <class T>
void head_norm_backward(Stream&, View<T, 3> d, View<const T, 3> x, const HeadWeights<T>& w,
                        View<const acc_t<T>, 2> rstd, View<const std::int32_t, 1> positions,
                        View<const acc_t<T>, 2> cosine, View<const acc_t<T>, 2> sine, View<acc_t<T>, 2> partial,
                        View<acc_t<T>, 1> d_queries, View<acc_t<T>, 1> d_keys);

// ---- rotary positions
// -------------------------------------------------------------------------------------------------

// Which entries of a head rotate together, of 2h: i and i + h, or 2i and 2i + 1.
enum class RotaryPairs { halves, neighbours };
enum class RotaryPart { last, first };
// Rotates in place the last, or the first, 2h entries of each head of x(R,n,D), in pairs, by the angle of its position
// (Su et al. 2021); cosine, sine: (P, h), 2h <= D. Inverse: backward.
template <class T>
void rotary(Stream&, View<T, 3> x, View<const std::int32_t, 1> positions, View<const acc_t<T>, 2> cosine,
            View<const acc_t<T>, 2> sine, bool inverse, RotaryPairs pairs = RotaryPairs::halves,
            RotaryPart part = RotaryPart::last);

// Keys and values of latent attention (DeepSeek-V2, arXiv:2405.04434). A head of `up`(R,H,D−r+Dv) has a key's entries
// without rotation, then the value; rope_key(R,r) ends the key of every head:
//   k(R,H,D) = [up's first D−r, rope_key];  v(R,H,Dv) = the rest of up
template <class T>
void latent_keys_forward(Stream&, View<const T, 3> up, View<const T, 2> rope_key, View<T, 3> k, View<T, 3> v);
// d_up from d_k and d_v; d_rope_key(R,r) = Σ over heads of d_k's last r, in A.
template <class T>
void latent_keys_backward(Stream&, View<const T, 3> d_k, View<const T, 3> d_v, View<T, 3> d_up, View<T, 2> d_rope_key);

// ---- activations
// ------------------------------------------------------------------------------------------------------

// The functions of a gated layer, g(gate) · h(up): x σ(x), or GELU's tanh form, h(u) = u (SwiGLU and GeGLU, Shazeer
// 2020); or as in gpt-oss (OpenAI 2025, arXiv 2508.10925), where an entry beyond its limit passes nothing back:
//   clamped: g(x) = x' σ(alpha x'), x' = min(x, limit);  h(u) = max(−limit, min(u, limit)) + 1
struct Gate {
  enum Kind { silu, gelu_tanh, clamped };
  Kind kind = silu;
  double limit = 0, alpha = 0;  // of clamped

  Gate(Kind k = silu, double limit_ = 0, double alpha_ = 0) : kind(k), limit(limit_), alpha(alpha_) {}
};
// act(R,F) = g(gate) · h(up); gate_up(R,2F) holds gate in the first F columns.
template <class T>
void swiglu_forward(Stream&, View<const T, 2> gate_up, View<T, 2> act, const RowAmaxes& amax = {},
                    Gate gate = Gate::silu);
// d_gate_up may alias gate_up. act, unless it is empty, gets the output of swiglu_forward, to the bit; then nothing is
// measured.
template <class T>
void swiglu_backward(Stream&, View<const T, 2> gate_up, View<const T, 2> d_act, View<T, 2> d_gate_up,
                     const RowAmaxes& amax = {}, View<T, 2> act = {}, Gate gate = Gate::silu);

enum class Pointwise { gelu, gelu_tanh, relu2 };  // x Φ(x); its tanh form; max(x,0)²
template <class T>
void pointwise_forward(Stream&, Pointwise, View<const T, 2> x, View<T, 2> act, const RowAmaxes& amax = {});
// dx may alias x or d_act; act as of swiglu_backward.
template <class T>
void pointwise_backward(Stream&, Pointwise, View<const T, 2> x, View<const T, 2> d_act, View<T, 2> dx,
                        const RowAmaxes& amax = {}, View<T, 2> act = {});

// ---- loss
// -------------------------------------------------------------------------------------------------------------

// Weights of rows' losses in gradients, by their groups; empty: 1.
struct RowWeights {
  View<const std::int32_t, 1> group;  // (R) −1: in none, weight 0
  View<const double, 1> weight;       // (groups)

  FORGE_INLINE double of(std::int64_t r) const {
    if (weight.empty()) return 1;
    return group[r] < 0 ? 0 : weight[group[r]];
  }
};

// Cross-entropy of one chunk of rows. logits(R,V) in A; labels(R), −1 = masked: no loss and a zero gradient.
//   loss[r] = lse − logit[label];  z[r] = lse²;  d_logits = (softmax · (1 + 2 z_coefficient · lse) − onehot) · scale
// scale = 1 / (labels of the step), times the weight of the row's group. d_logits(R,V) may be empty (evaluation); for
// T = A it may alias logits. z-loss: Chowdhery et al. 2022 (PaLM).
template <class T>
void cross_entropy(Stream&, View<const acc_t<T>, 2> logits, View<const std::int32_t, 1> labels, double scale,
                   double z_coefficient, View<acc_t<T>, 1> loss, View<acc_t<T>, 1> z, View<T, 2> d_logits,
                   const RowWeights& weights = {});

// Cross-entropy where each rank of a group has some columns of the vocabulary, with one all-gather of `statistics`
// between the two. This rank has the columns [first_column, first_column + columns); columns of logits behind them are
// padding, which is not read and whose d_logits is 0. `columns` may be 0. Labels are of the whole vocabulary.
//   statistics(R,3) = max x, Σ e^(x − max), x[label] or −Inf on ranks that don't have it
template <class T>
void cross_entropy_statistics(Stream&, View<const acc_t<T>, 2> logits, std::int64_t columns,
                              View<const std::int32_t, 1> labels, std::int64_t first_column,
                              View<acc_t<T>, 2> statistics);
// all_statistics(ranks·R,3): rank after rank. loss and z are the same bits on every rank.
template <class T>
void cross_entropy_from_statistics(Stream&, View<const acc_t<T>, 2> logits, std::int64_t columns,
                                   View<const std::int32_t, 1> labels, std::int64_t first_column,
                                   View<const acc_t<T>, 2> all_statistics, int ranks, double scale,
                                   double z_coefficient, View<acc_t<T>, 1> loss, View<acc_t<T>, 1> z,
                                   View<T, 2> d_logits, const RowWeights& weights = {});

// x(R,V) ← c tanh(x / c), c = cap > 0 (Gemma 2, arXiv 2408.00118).
template <class A>
void soft_cap(Stream&, View<A, 2> x, double cap);
// d(R,V) ← d (1 − (y / c)²), from the output of soft_cap, y(R,V).
template <class T>
void soft_cap_backward(Stream&, View<const acc_t<T>, 2> y, double cap, View<T, 2> d);

// ---- reductions and the update
// ----------------------------------------------------------------------------------------

// out[0] += Σ x. One team; in double: losses of a step.
template <class A>
void sum_into(Stream&, View<const A, 1> x, View<double, 1> out);
// out[g] += Σ x over the rows of group g, (rows), in the order of the rows; groups are 0 … rows of out − 1; −1: none.
template <class A>
void sum_by_group(Stream&, View<const A, 1> x, View<const std::int32_t, 1> group, View<double, 1> out);
// out[0] += Σ x²; partial: sum_partials doubles of workspace.
template <class A>
void sum_of_squares(Stream&, View<const A, 1> x, View<double, 1> partial, View<double, 1> out);

// The scalars of a step for the update; they live on the device, the host doesn't read them inside the step.
struct StepScalars {
  double loss_sum, z_sum, norm_squared;  // sums over all ranks once reduced
  double clip_coefficient;               // min(1, clip / (norm + 1e-6)), or 1
  double finite;                         // 1: update; 0: leave everything as it is
};
// From the reduced loss_sum, z_sum and norm_squared. clip_norm 0: no clipping.
void finish_scalars(Stream&, View<StepScalars, 1> scalars, double clip_norm);

}  // namespace forge
