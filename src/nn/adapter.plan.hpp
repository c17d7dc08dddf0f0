#pragma once

#include <array>

#include "model/block_product.hpp"
#include "model/parameter_lister.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/adapter.hpp: low-rank matrices beside those of a frozen block (Hu et al. 2022, arXiv 2106.09685,
// "LoRA"; as PEFT stores them). Beside W(N, K) stand A(r, K) and B(N, r): y = W x + s B A x. Of the tensors in one W
// (q, k and v; gate and up) each has its own: the A stand one below the other, the B in the rows of theirs.

// A product of a block; of the shared experts, whose products are those of a feed-forward layer, too; of gated
// DeltaNet, whose projections stand in the place of q, k and v.
struct AdaptedProduct {
  BlockProduct product;
  bool shared = false, linear = false;

  constexpr AdaptedProduct(BlockProduct of, bool of_shared = false, bool of_linear = false)
      : product(of), shared(of_shared), linear(of_linear) {}
};
inline constexpr AdaptedProduct delta_in{BlockProduct::qkv, false, true},
    delta_out{BlockProduct::attention_out, false, true};

// A tensor of a product's W as the family's checkpoints have it; of each expert's (expert_gate_up, expert_down).
struct AdaptedTensor {
  std::string_view name;              // "attention.q"; of an expert's behind its own, "gate"
  ShortList<std::string_view, 3> hf;  // one behind the other: "self_attn.q_proj"; likewise "gate_proj"
  std::int64_t rows = 0, columns = 0;
  Splits a_split, b_split;
  std::int64_t groups = 0;  // Parameter::hf_groups of its rows
  bool adapted = false;     // adapter.targets has it
};
inline constexpr std::size_t most_adapted = 4;  // tensors of a product
using AdaptedTensors = ShortList<AdaptedTensor, most_adapted>;
NameParts with_end(const ShortList<std::string_view, 3>& parts, std::string_view end);
// All of them, in the order of W's rows; of this rank where the spec is. None of products that no block of the model
// has.
AdaptedTensors tensors_of(const ModelSpec& spec, AdaptedProduct product);
// r times the number of those that have an adapter: rows of the stacked A.
std::int64_t low_columns(const ModelSpec& spec, AdaptedProduct product);
// The products of a block beside which adapters may stand, but for those of experts: with experts those of the shared
// ones in the place of a feed-forward layer's.
std::array<AdaptedProduct, 8> adapted_products(const ModelSpec& spec, std::int64_t layer);
// Whether this block has any, but for those of experts; whether experts have.
bool has_adapters(const ModelSpec& spec, std::int64_t layer);
bool has_expert_adapters(const ModelSpec& spec);
// s: alpha / r, or alpha / sqrt(r).
double adapter_scale(const AdapterDeck& adapter);

// Rows of a product on a tp rank: R, or S of the down-projections of latent attention, which every rank has whole.
template <class L>
std::int64_t rows_of(const L& list, BlockProduct product) {
  return product == BlockProduct::q_down || product == BlockProduct::kv_down ? list.S : list.R;
}

template <class P>
struct LowRank {
  View<P, 2> a;                            // (n r, K)
  std::array<View<P, 2>, most_adapted> b;  // (N of the tensor, r), of those that have one, in their order

  void list(ParameterLister& l, AdaptedProduct product);
};

// x Aᵀ of a product, which forward saves for the gradient of B, and its gradient, which B saves for the gradient of A.
template <class T>
struct LowRows {
  View<T, 2> u, d_u;  // (R, n r), or (S, n r)

  void list(BufferLister& l, AdaptedProduct of) {
    if (const std::int64_t columns = low_columns(l.spec, of); columns > 0)
      l.save(u, "low-rank rows", rows_of(l, of.product), columns, l.W);
  }
  void list_gradients(BufferLister& l, AdaptedProduct of) {
    if (const std::int64_t columns = low_columns(l.spec, of); columns > 0)
      l.add(d_u, "gradient of low-rank rows", rows_of(l, of.product), columns, l.W);
  }
};

// The input of A that adapter.dropout draws a mask for: products that share it share the mask. The run has one buffer
// for the dropped input of the adapter at work.
enum class AdapterInput : std::uint8_t { attention, query_latent, key_latent, attention_out, feed_forward, activation };
AdapterInput input_of(const ModelSpec& spec, BlockProduct product);
// Part of the mask's key, apart from the model's own places of dropout.
constexpr std::uint64_t adapter_place(std::int64_t layer, AdapterInput input) {
  return std::uint64_t{1} << 32 | static_cast<std::uint64_t>(layer) << 3 | static_cast<std::uint64_t>(input);
}
template <class T>
struct DroppedRows {
  View<T, 1> values;  // of the most rows times columns of an input

  void list(BufferLister& l, bool trains);
};

// Forward, B and W of the adapters of a product.
void list_adapter(Segments& list, AdaptedProduct product, ProductOf of);
// x Aᵀ alone, which recomputation makes anew.
void list_low_rows(Segments& list, AdaptedProduct product);

}  // namespace forge
