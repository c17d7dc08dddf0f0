#include "nn/head.plan.hpp"

#include "model/unit_builder.hpp"

namespace forge {

Unit output_unit(const ModelSpec& s) {
  UnitBuilder unit(s, UnitKind::output, -1, "head");
  unit.add(Role::output, "output", "lm_head.weight", {s.V(), s.C()}, split_rows(), Initial::normal, unit.matrix_std());
  return unit.finish();
}

Unit final_norm_unit(const ModelSpec& s) {
  UnitBuilder unit(s, UnitKind::final_norm, -1, "head");
  const std::string hf = unit.hf("model.norm.", "transformer.ln_f.");
  unit.add(Role::final_norm, "norm", hf + "weight", {s.C()}, Initial::ones);
  if (s.layernorm()) unit.add(Role::final_norm_bias, "norm_bias", hf + "bias", {s.C()}, Initial::zeros);
  return unit.finish();
}

void add_head_sends(Sends& sends) {
  const BufferContext& c = sends.c;
  sends.rows(Collective::all_gather);
  for (std::int64_t begin = 0; begin < c.microbatch.rows(); begin += c.head_chunk_rows)
    sends.add(Group::tp, Collective::all_gather, 3 * std::min(c.head_chunk_rows, c.microbatch.rows() - begin),
              c.precision.accumulate);
  sends.rows(Collective::reduce_scatter);
}

}  // namespace forge
