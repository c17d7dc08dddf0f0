#pragma once

#include "nn/embedding.plan.hpp"
#include "nn/head.plan.hpp"

namespace forge {

// The pure half of nn/mtp.hpp.

// What a module has beside its block, in the block's unit; its norms are RMSNorms.
template <class P>
struct MtpParameters {
  View<P, 2> projection;                         // (C, 2C): of [normalised embedding, normalised hidden state]
  View<P, 1> embedding_norm, hidden_norm, norm;  // (C); the last before the head

  void list(ParameterLister& l) {
    const std::int64_t C = l.spec.C();
    const bool own = l.mtp_names();
    l.add(projection, {.name = {"mtp.projection"},
                       .hf = {own ? "mtp.fc.weight" : "eh_proj.weight"},
                       .shape = {C, 2 * C},
                       .initial = Initial::normal,
                       .std = l.matrix_std(),
                       .whole_name = own});
    const auto add_norm = [&](View<P, 1>& w, std::string_view name, std::string_view hf) {
      l.add(w, {.name = {name},
                .hf = {hf},
                .shape = {C},
                .initial = Initial::ones,
                .offset = l.norm_offset(),
                .whole_name = own});
    };
    add_norm(embedding_norm, "mtp.embedding_norm", own ? "mtp.pre_fc_norm_embedding.weight" : "enorm.weight");
    add_norm(hidden_norm, "mtp.hidden_norm", own ? "mtp.pre_fc_norm_hidden.weight" : "hnorm.weight");
    add_norm(norm, "mtp.norm", own ? "mtp.norm.weight" : "shared_head.norm.weight");
  }
};

// The head of a depth.
template <class P>
HeadParameters<P> head_of_depth(const std::type_identity_t<View<P, 2>>& output, const MtpParameters<P>& module) {
  return {output, {module.norm, {}}, true};
}

template <class T>
struct MtpBuffers {
  View<T, 2> embedding;                           // (S, C) of the shifted tokens
  View<acc_t<T>, 1> embedding_rstd, hidden_rstd;  // (S)
  View<T, 2> in;                                  // (S, 2C) both, normalised, side by side

  void list(BufferLister& l) {
    l.keep(embedding, "embedding of shifted tokens", l.S, l.spec.C(), l.B);
    l.keep(embedding_rstd, "its norm's rstd", l.S, 1, l.B);
    l.keep(hidden_rstd, "hidden state's norm rstd", l.S, 1, l.B);
    l.recompute(in, Recompute::norms, "embedding and hidden state", l.S, 2 * l.spec.C(), l.W);
  }
};

// Workspace of B.
template <class T>
struct MtpScratch {
  RowScratch<T> rows;
  View<T, 2> d_in;         // (S, 2C)
  View<T, 2> d_embedding;  // (S, C)

  void list(BufferLister& l) {
    l.add(d_in, "gradient of embedding and hidden state", l.S, 2 * l.spec.C());
    l.add(d_embedding, "gradient of the embedding", l.S, l.spec.C());
    rows.list_norm(l, l.spec.C());
  }
};

// The gradient of the embedding's rows is taken in B.
void list_mtp(Segments& list, Pass pass, bool recompute);

}  // namespace forge
