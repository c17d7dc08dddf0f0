#include "nn/mlp.plan.hpp"

namespace forge {

template <class P>
void MlpParameters<P>::list(ParameterLister& l, std::int64_t ffn, bool biases, const MlpNames& n) {
  const ModelSpec& s = l.spec;
  const std::string_view up_hf = l.hf("up_proj.", "c_fc."), down_hf = l.hf("down_proj.", "c_proj.");
  const auto up_weight = [&](std::string_view name, std::string_view hf) {
    l.tensor({{n.own, name},
              {n.hf, n.inner_hf, hf, "weight"},
              {ffn, s.C()},
              split_rows(),
              Initial::normal,
              l.matrix_std(),
              l.gpt2()});
  };
  const auto up_bias_of = [&](std::string_view name, std::string_view hf) {
    l.tensor({{n.own, name, "_bias"}, {n.hf, n.inner_hf, hf, "bias"}, {ffn}, split_rows()});
  };
  l.start(up, {{s.up_columns(ffn), s.C()}});
  if (s.gated()) up_weight("gate", "gate_proj.");
  up_weight("up", up_hf);
  l.add(down, {{n.own, "down"},
               {n.hf, n.inner_hf, down_hf, "weight"},
               {s.C(), ffn},
               split_columns(),
               Initial::normal,
               l.output_std(),
               l.gpt2()});
  if (!biases) return;
  l.start(up_bias, {{s.up_columns(ffn)}});
  if (s.gated()) up_bias_of("gate", "gate_proj.");
  up_bias_of("up", up_hf);
  l.add(down_bias, {{n.own, "down_bias"}, {n.hf, n.inner_hf, down_hf, "bias"}, {s.C()}}, Section::output_biases);
}

#define FORGE_INSTANTIATE(T)              \
  template struct MlpParameters<const T>; \
  template struct MlpParameters<T>;
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

void add_mlp_sends(Sends& sends, Pass pass, bool output) {
  sends.rows(Collective::all_gather);
  if (pass == Pass::backward_input || (pass == Pass::forward && output)) sends.rows(Collective::reduce_scatter);
}

}  // namespace forge
