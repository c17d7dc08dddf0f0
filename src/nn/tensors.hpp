#pragma once

#include <type_traits>

#include "core/view.hpp"
#include "layout/local_units.hpp"

namespace forge {

// The parameters of a unit as Views into its flat buffer; H, K, F and V are those of this tensor-parallel rank. P is
// const T for the weights that a layer reads, acc_t<T> for the gradients that it adds to. What a model doesn't have is
// empty.
template <class P>
struct BlockTensors {
  View<P, 2> qkv;                                   // ((H + 2K) D, C)
  View<P, 2> attention_out;                         // (C, H Dv)
  View<P, 2> up;                                    // (2F, C) gate above up, or (F, C)
  View<P, 2> down;                                  // (C, F)
  View<P, 1> norm1, norm1_bias, norm2, norm2_bias;  // (C)
  View<P, 1> q_norm, k_norm;                        // (D)
  View<P, 1> qkv_bias, attention_out_bias, up_bias, down_bias;
  // A layer with experts has these instead of up and down; N = E / ep.
  View<P, 2> router;                  // (E, C)
  View<P, 2> shared_up, shared_down;  // (2Fs, C), (C, Fs)
  View<P, 2> shared_gate;             // (1, C)
  View<P, 3> expert_up, expert_down;  // (N, 2Fe, C), (N, C, Fe): of the unit of experts
  // Multi-head latent attention, instead of qkv.
  View<P, 2> q_down, kv_down;            // (q_lora, C), (kv_lora + rope_dim, C)
  View<P, 2> q_up, kv_up;                // (H D, q_lora or C), (H (nope_dim + Dv), kv_lora)
  View<P, 1> q_down_norm, kv_down_norm;  // (q_lora), (kv_lora)
};

// A buffer with the elements of a unit from `begin` on: with all of them, or with those of its vectors, which stand
// behind the matrices.
template <class P>
struct UnitPart {
  P* data = nullptr;
  std::int64_t begin = 0;

  UnitPart() = default;
  UnitPart(P* first, std::int64_t first_element = 0) : data(first), begin(first_element) {}
  // That of the unit's element `offset`; null where the buffer doesn't have it.
  P* at(std::int64_t offset) const { return data && offset >= begin ? data + (offset - begin) : nullptr; }
};

template <class P>
struct EmbeddingTensors {
  View<P, 2> tokens;     // (V, C)
  View<P, 2> positions;  // (P, C), empty with rotary positions
};

template <class P>
struct HeadTensors {
  View<P, 2> output;  // (V, C): its own, or the embedding's table
  View<P, 1> norm, norm_bias;
  bool rms_norm = false;  // whatever the model's norms are
};

// What a module of multi-token prediction has beside its block, in the block's unit; its norms are RMSNorms.
template <class P>
struct MtpTensors {
  View<P, 2> projection;                         // (C, 2C)
  View<P, 1> embedding_norm, hidden_norm, norm;  // (C); the last before the head
};

template <class P>
View<P, 2> matrix_of(const LocalUnit& unit, const UnitPart<P>& part, Role role, std::int64_t rows,
                     std::int64_t columns) {
  P* const data = part.at(unit.offset_of(role));
  return data ? View<P, 2>(data, {{rows, columns}}) : View<P, 2>();
}

template <class P>
View<P, 1> vector_of(const LocalUnit& unit, const UnitPart<P>& part, Role role, std::int64_t elements) {
  P* const data = part.at(unit.offset_of(role));
  return data ? View<P, 1>(data, {{elements}}) : View<P, 1>();
}

// `matrices` and `vectors`: the unit's flat buffer, or two of them: gradients of vectors may be summed elsewhere than
// those of matrices.
template <class P>
BlockTensors<P> block_tensors(const ModelSpec& s, const LocalUnit& unit,
                              const std::type_identity_t<UnitPart<P>>& matrices, const UnitPart<P>& vectors) {
  BlockTensors<P> t;
  t.qkv = matrix_of(unit, matrices, Role::qkv, s.qkv_columns(), s.C());
  t.attention_out = matrix_of(unit, matrices, Role::attention_out, s.C(), s.o_columns());
  t.up = matrix_of(unit, matrices, Role::up, s.up_columns(), s.C());
  t.down = matrix_of(unit, matrices, Role::down, s.C(), s.F());
  t.router = matrix_of(unit, matrices, Role::router, s.E(), s.C());
  t.shared_up = matrix_of(unit, matrices, Role::shared_up, s.up_columns(s.Fs()), s.C());
  t.shared_down = matrix_of(unit, matrices, Role::shared_down, s.C(), s.Fs());
  t.norm1 = vector_of(unit, vectors, Role::norm1, s.C());
  t.norm1_bias = vector_of(unit, vectors, Role::norm1_bias, s.C());
  t.norm2 = vector_of(unit, vectors, Role::norm2, s.C());
  t.norm2_bias = vector_of(unit, vectors, Role::norm2_bias, s.C());
  t.q_norm = vector_of(unit, vectors, Role::q_norm, s.D());
  t.k_norm = vector_of(unit, vectors, Role::k_norm, s.D());
  t.shared_gate = matrix_of(unit, vectors, Role::shared_gate, 1, s.C());
  t.qkv_bias = vector_of(unit, vectors, Role::qkv_bias, s.qkv_columns());
  t.attention_out_bias = vector_of(unit, vectors, Role::attention_out_bias, s.C());
  t.up_bias = vector_of(unit, vectors, Role::up_bias, s.up_columns());
  t.down_bias = vector_of(unit, vectors, Role::down_bias, s.C());
  t.q_down = matrix_of(unit, matrices, Role::q_down, s.q_lora(), s.C());
  t.kv_down = matrix_of(unit, matrices, Role::kv_down, s.kv_down_columns(), s.C());
  t.q_up = matrix_of(unit, matrices, Role::q_up, s.q_columns(), s.q_up_inputs());
  t.kv_up = matrix_of(unit, matrices, Role::kv_up, s.kv_up_columns(), s.kv_lora());
  t.q_down_norm = vector_of(unit, vectors, Role::q_down_norm, s.q_lora());
  t.kv_down_norm = vector_of(unit, vectors, Role::kv_down_norm, s.kv_lora());
  return t;
}
template <class P>
MtpTensors<P> mtp_tensors(const ModelSpec& s, const LocalUnit& unit, const std::type_identity_t<UnitPart<P>>& matrices,
                          const UnitPart<P>& vectors) {
  return {matrix_of(unit, matrices, Role::mtp_projection, s.C(), 2 * s.C()),
          vector_of(unit, vectors, Role::mtp_embedding_norm, s.C()),
          vector_of(unit, vectors, Role::mtp_hidden_norm, s.C()), vector_of(unit, vectors, Role::mtp_norm, s.C())};
}
template <class P>
MtpTensors<P> mtp_tensors(const ModelSpec& s, const LocalUnit& unit, P* base) {
  return mtp_tensors(s, unit, UnitPart<P>{base}, UnitPart<P>{base});
}
// Adds the experts of a layer to the tensors of its block.
template <class P>
void set_expert_tensors(BlockTensors<P>& t, const ModelSpec& s, std::int64_t experts_here, const LocalUnit& unit,
                        P* base) {
  t.expert_up = View<P, 3>(base + unit.offset_of(Role::expert_up), {{experts_here, s.up_columns(s.Fe()), s.C()}});
  t.expert_down = View<P, 3>(base + unit.offset_of(Role::expert_down), {{experts_here, s.C(), s.Fe()}});
}
template <class P>
BlockTensors<P> block_tensors(const ModelSpec& s, const LocalUnit& unit, P* base) {
  return block_tensors(s, unit, UnitPart<P>{base}, UnitPart<P>{base});
}

// The one tensor of a unit that is a table or the output matrix.
template <class P>
View<P, 2> table_tensor(const ModelSpec& s, const LocalUnit& unit, P* base) {
  switch (unit.kind) {
    case UnitKind::token_table:
      return matrix_of(unit, UnitPart<P>{base}, Role::token_table, s.V(), s.C());
    case UnitKind::position_table:
      return matrix_of(unit, UnitPart<P>{base}, Role::position_table, s.options.max_positions, s.C());
    default:
      return matrix_of(unit, UnitPart<P>{base}, Role::output, s.V(), s.C());
  }
}

// `output`: its own matrix, or the token table it is tied to.
template <class P>
HeadTensors<P> head_tensors(const ModelSpec& s, View<P, 2> output, const LocalUnit& norm,
                            const std::type_identity_t<UnitPart<P>>& part) {
  return {output, vector_of(norm, part, Role::final_norm, s.C()), vector_of(norm, part, Role::final_norm_bias, s.C())};
}
// The head of a depth of multi-token prediction.
template <class P>
HeadTensors<P> head_tensors(View<P, 2> output, const MtpTensors<P>& module) {
  return {output, module.norm, {}, true};
}

}  // namespace forge
