#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "layout_run.hpp"

namespace forge::test {

namespace {

bool same_bits(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

bool agree(const LayoutResult& a, const LayoutResult& b) {
  bool same = same_bits(a.loss, b.loss) && same_bits(a.total_loss, b.total_loss) &&
              same_bits(a.grad_norm, b.grad_norm) && same_bits(a.validation_loss, b.validation_loss) &&
              a.losses.size() == b.losses.size();
  for (std::size_t i = 0; same && i < a.losses.size(); ++i)
    same = same_bits(a.losses[i], b.losses[i]) && same_bits(a.total_losses[i], b.total_losses[i]) &&
           same_bits(a.norms[i], b.norms[i]);
  return same;
}

void add_deviations(Deviations& to, const Deviations& from) {
  for (const auto& [name, deviation] : from) {
    to[name].largest = std::max(to[name].largest, deviation.largest);
    to[name].owned += deviation.owned;
    to[name].squares += deviation.squares;
  }
}

}  // namespace

LayoutResult merged(std::vector<LayoutResult> ranks) {
  LayoutResult all = std::move(ranks.front());
  if (!all.problem.empty()) all.problem = "rank 0: " + all.problem;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const std::string rank = "rank " + std::to_string(r) + ": ";
    add_deviations(all.gradient_deviations, ranks[r].gradient_deviations);
    add_deviations(all.parameter_deviations, ranks[r].parameter_deviations);
    all.routing.merge(ranks[r].routing);
    all.amaxes.merge(ranks[r].amaxes);
    all.records += ranks[r].records;
    all.rail_bytes += ranks[r].rail_bytes;
    if (!all.problem.empty()) continue;
    if (!ranks[r].problem.empty())
      all.problem = rank + ranks[r].problem;
    else if (!agree(all, ranks[r]))
      all.problem = rank + "another loss or norm than rank 0";
  }
  return all;
}

std::string text_of(const Deck& d) {
  std::ostringstream text;
  text << "pp " << d.mesh.pp << ", dp " << d.mesh.dp_replicate << " x " << d.mesh.dp_shard << ", cp " << d.mesh.cp
       << ", tp " << d.mesh.tp << ", ep " << d.mesh.ep << ", etp " << d.mesh.etp << "; zero " << d.train.zero_stage
       << ", accumulate " << static_cast<int>(d.train.accumulate) << ", levels " << static_cast<int>(d.train.reduction)
       << ", gather " << static_cast<int>(d.train.gather) << ", recompute " << name_of(d.train.recompute)
       << " and full of " << d.train.recompute_full_layers << ", schedule " << static_cast<int>(d.schedule.name)
       << " x " << d.schedule.virtual_stages << " " << d.schedule.split << ", cp method "
       << static_cast<int>(d.mesh.cp_method) << ", b " << d.train.microbatch_sequences << ", G "
       << d.train.global_batch_sequences << ", T " << d.train.sequence_tokens << ", precision "
       << static_cast<int>(d.train.precision) << "; L " << d.model.layers << ", C " << d.model.width << ", H "
       << d.model.heads << ", K " << d.model.kv_heads << ", D " << d.model.head_dim << ", F " << d.model.ffn << ", V "
       << d.model.vocabulary;
  if (d.model.attention == AttentionKind::mla)
    text << ", latents " << d.model.q_lora << " and " << d.model.kv_lora << ", heads of " << d.model.nope_dim << " + "
         << d.model.rope_dim << ", values of " << d.model.value_dim;
  return text.str();
}

}  // namespace forge::test
