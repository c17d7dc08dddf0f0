#pragma once

#include "model/parameters.hpp"
#include "tensor/view.hpp"

namespace forge {

// The parameters of a unit as Views into its flat buffer. P is const T for the weights that a layer reads, acc_t<T> for
// the gradients that it adds to. What a model doesn't have is empty.
template <class P>
struct BlockTensors {
  View<P, 2> qkv;                                   // ((H + 2K) D, C)
  View<P, 2> attention_out;                         // (C, H D)
  View<P, 2> up;                                    // (2F, C) gate above up, or (F, C)
  View<P, 2> down;                                  // (C, F)
  View<P, 1> norm1, norm1_bias, norm2, norm2_bias;  // (C)
  View<P, 1> q_norm, k_norm;                        // (D)
  View<P, 1> qkv_bias, attention_out_bias, up_bias, down_bias;
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
};

template <class P>
View<P, 2> matrix_of(const Unit& unit, P* base, Role role, std::int64_t rows, std::int64_t columns) {
  const std::int64_t offset = role_offset(unit, role);
  return offset < 0 ? View<P, 2>() : View<P, 2>(base + offset, {{rows, columns}});
}

template <class P>
View<P, 1> vector_of(const Unit& unit, P* base, Role role, std::int64_t elements) {
  const std::int64_t offset = role_offset(unit, role);
  return offset < 0 ? View<P, 1>() : View<P, 1>(base + offset, {{elements}});
}

template <class P>
BlockTensors<P> block_tensors(const ModelSpec& s, const Unit& unit, P* base) {
  BlockTensors<P> t;
  t.qkv = matrix_of(unit, base, Role::qkv, s.qkv_columns(), s.C());
  t.attention_out = matrix_of(unit, base, Role::attention_out, s.C(), s.q_columns());
  t.up = matrix_of(unit, base, Role::up, s.up_columns(), s.C());
  t.down = matrix_of(unit, base, Role::down, s.C(), s.F());
  t.norm1 = vector_of(unit, base, Role::norm1, s.C());
  t.norm1_bias = vector_of(unit, base, Role::norm1_bias, s.C());
  t.norm2 = vector_of(unit, base, Role::norm2, s.C());
  t.norm2_bias = vector_of(unit, base, Role::norm2_bias, s.C());
  t.q_norm = vector_of(unit, base, Role::q_norm, s.D());
  t.k_norm = vector_of(unit, base, Role::k_norm, s.D());
  t.qkv_bias = vector_of(unit, base, Role::qkv_bias, s.qkv_columns());
  t.attention_out_bias = vector_of(unit, base, Role::attention_out_bias, s.C());
  t.up_bias = vector_of(unit, base, Role::up_bias, s.up_columns());
  t.down_bias = vector_of(unit, base, Role::down_bias, s.C());
  return t;
}

template <class P>
EmbeddingTensors<P> embedding_tensors(const ModelSpec& s, const Unit& unit, P* base) {
  return {matrix_of(unit, base, Role::token_table, s.V(), s.C()),
          matrix_of(unit, base, Role::position_table, s.options.max_positions, s.C())};
}

// `table`: the embedding's token table, used where the output matrix is tied to it.
template <class P>
HeadTensors<P> head_tensors(const ModelSpec& s, const Unit& unit, P* base, View<P, 2> table) {
  const auto own = matrix_of(unit, base, Role::output, s.V(), s.C());
  return {own.empty() ? table : own, vector_of(unit, base, Role::final_norm, s.C()),
          vector_of(unit, base, Role::final_norm_bias, s.C())};
}

}  // namespace forge
