#include "nn/mtp.plan.hpp"

namespace forge {

void add_mtp_parameters(UnitBuilder& unit) {
  const std::int64_t C = unit.spec.C();
  const std::string prefix = unit.hf_of_block();
  unit.add(Role::mtp_projection, "mtp.projection", prefix + "eh_proj.weight", {C, 2 * C}, Initial::normal,
           unit.matrix_std());
  unit.add(Role::mtp_embedding_norm, "mtp.embedding_norm", prefix + "enorm.weight", {C}, Initial::ones);
  unit.add(Role::mtp_hidden_norm, "mtp.hidden_norm", prefix + "hnorm.weight", {C}, Initial::ones);
  unit.add(Role::mtp_norm, "mtp.norm", prefix + "shared_head.norm.weight", {C}, Initial::ones);
}

void add_mtp_sends(Sends& sends, Pass pass, bool recompute) {
  if (pass == Pass::backward_weight || recompute) return;
  add_embedding_sends(sends, pass);
}

}  // namespace forge
