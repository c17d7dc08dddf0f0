#pragma once

#include "model/parameter_lister.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/norm.hpp.

// RMSNorm has no bias.
template <class P>
struct NormParameters {
  View<P, 1> weight, bias;  // (C)

  // `hf` ends in a point.
  void list(ParameterLister& l, std::string_view name, std::string_view hf) {
    const std::int64_t C = l.spec.C();
    l.add(weight, {{name}, {hf, "weight"}, {C}, {}, Initial::ones, 0, false, -1, l.norm_offset()},
          Section::stream_norms);
    if (l.spec.layernorm()) l.add(bias, {{name, "_bias"}, {hf, "bias"}, {C}}, Section::stream_norms);
  }
};

// The statistics of a norm's rows; RMSNorm has no mean.
template <class T>
struct NormStatistics {
  View<acc_t<T>, 1> mean, rstd;  // (S)

  void list(BufferLister& l, std::string_view mean_name, std::string_view rstd_name) {
    if (l.spec.layernorm()) l.save(mean, mean_name, l.S, 1, Reader::backward_input);
    l.save(rstd, rstd_name, l.S, 1, Reader::backward_input);
  }
};

// The gradients of a norm's input and parameters, whose sums over chunks of rows are added up one by one.
inline void list_norm_backward(Segments& list, std::int64_t rows, std::int64_t columns, std::int64_t reads,
                               std::int64_t parameters) {
  list.over_rows("norm_backward", rows, columns, reads, 1).launches = 1 + (list.frozen ? 0 : parameters);
}

// What a norm of rows computes, forward or in B, which `adds` the gradient of the stream.
inline void list_norm(Segments& list, Pass pass, std::int64_t rows, std::int64_t columns, bool adds = true) {
  if (pass == Pass::forward) list.over_rows("norm_forward", rows, columns, 1, 1);
  if (pass != Pass::backward_input) return;
  list_norm_backward(list, rows, columns, adds ? 3 : 2, list.spec.layernorm() ? 2 : 1);
}
// B from the gradient of a result that joined the stream to the gradient of the output projection.
inline void list_output_gradient(Segments& list) {
  if (list.spec.options.dropout > 0) list.over_rows("dropout", list.S, list.spec.C(), 1, 1);
  if (list.spec.norms_behind()) list_norm(list, Pass::backward_input, list.S, list.spec.C(), false);
}
// B from the gradient of the input of attention or of the feed-forward layer to the gradient of the stream.
inline void list_stream_gradient(Segments& list) {
  if (list.spec.norms_before())
    list_norm(list, Pass::backward_input, list.S, list.spec.C());
  else
    list.over_rows("residual_add", list.S, list.spec.C(), 2, 1);
}
// Attention's result joins the stream, normalised where norms stand behind; where they stand before, with the norm of
// the sum.
inline void list_residual_norm(Segments& list) {
  const std::int64_t S = list.S, C = list.spec.C();
  if (list.spec.norms_behind()) list_norm(list, Pass::forward, S, C);
  if (list.spec.norms_before() && list.spec.options.dropout == 0) {
    list.over_rows("residual_norm_forward", S, C, 2, 2);
    return;
  }
  list.over_rows("residual_add", S, C, 2, 1);
  if (list.spec.norms_before()) list_norm(list, Pass::forward, S, C);
}

}  // namespace forge
