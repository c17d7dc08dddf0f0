#include "plan/setup.hpp"

#include <set>

#include "config/head_ranks.hpp"
#include "config/optimizer_table.hpp"
#include "core/error.hpp"
#include "layout/expert_nodes.hpp"
#include "layout/shard_nodes.hpp"
#include "model/cudnn_attention.hpp"
#include "nn/adapter.plan.hpp"
#include "nn/units.plan.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"
#include "schedule/validate.hpp"

namespace forge {

RowShare RunSetup::rows() const {
  return {mesh.cp,
          share.cp_rank,
          mesh.cp_inner,
          mesh.tp,
          share.tp_rank,
          vocabulary_rows(spec, mesh.tp, share.tp_rank),
          static_cast<int>(spec.options.mtp_depth),
          !deck.data.sources.empty(),
          deck.data.restarts_positions(),
          deck.preference.on(),
          spec.options.full_attention_interval > 0};
}

std::size_t RunSetup::schedule_number(std::int64_t step) const {
  const std::int64_t count = microbatches_of(deck, batches.of(step));
  for (std::size_t i = 0; i < smaller.size(); ++i)
    if (smaller[i].microbatches == count) return i + 1;
  return 0;
}

const Schedule& RunSetup::schedule_of(std::int64_t step) const {
  const std::size_t number = schedule_number(step);
  return number == 0 ? schedule : smaller[number - 1];
}

double RunSetup::router_scopes(std::int64_t step) const {
  const auto sequences = static_cast<double>(batches.of(step));
  return spec.options.auxiliary_loss_scope == AuxiliaryScope::sequence
             ? sequences
             : sequences / static_cast<double>(deck.train.microbatch_sequences);
}

namespace {

// Of the batches of a ramp that have fewer microbatches than the largest one.
std::vector<Schedule> smaller_schedules(const Deck& deck) {
  std::set<std::int64_t> counts;
  for (const RampDeck& entry : deck.train.batch_ramp)
    counts.insert(microbatches_of(deck, entry.global_batch_sequences));
  counts.erase(microbatches_of(deck));
  std::vector<Schedule> schedules;
  for (const std::int64_t count : counts) {
    schedules.push_back(lower(schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(count))));
    validate(schedules.back());
  }
  return schedules;
}

}  // namespace

RunSetup make_setup(const Deck& deck, int rank, const Schedule& lowered, const KernelChoice& kernels,
                    const std::vector<Unit>* units) {
  RunSetup setup;
  setup.deck = deck;
  setup.batches = BatchSizes(deck.train);
  setup.smaller = smaller_schedules(deck);
  setup.spec = resolve_model(deck.model);
  setup.units = units ? *units : parameter_units(setup.spec);
  freeze(deck.train.frozen, setup.units);
  check_groups(deck.optimizer, setup.units);
  setup.mesh = resolve_mesh(deck.mesh, ranks_of(deck.mesh));
  setup.mesh.cp_inner = static_cast<int>(head_ranks(deck));
  setup.mesh.ep_nodes = chosen_expert_nodes(deck, setup.mesh);
  set_shard_nodes(deck, setup.mesh);
  setup.rank = rank;
  setup.microbatches = static_cast<int>(microbatches_of(deck));
  setup.schedule = lowered;
  setup.stages = split_layers(deck.schedule.split, static_cast<int>(setup.spec.L()), lowered.stages(),
                              static_cast<int>(setup.spec.options.mtp_depth));
  setup.share = rank_share(setup.model_share(), rank);
  setup.buffers = buffer_context(deck, local_spec(setup.spec, setup.mesh.tp, setup.mesh.etp), kernels);
  setup.buffers.ep_nodes = setup.mesh.ep_nodes;
  setup.buffers.row_scores = !deck.data.tasks.empty() || deck.preference.on();
  check_rounded_experts(setup.spec, setup.buffers.rounding);
  check_cudnn_workspace(deck, setup.buffers);
  resolve_coded(setup.buffers.rounding, deck, setup.mesh);
  return setup;
}

RunSetup make_setup(const Deck& deck, int rank, const KernelChoice& kernels) {
  const Schedule lowered =
      lower(schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(microbatches_of(deck))));
  validate(lowered);
  return make_setup(deck, rank, lowered, kernels);
}

RunSetup on_devices(RunSetup setup, int capability) {
  setup.capability = capability;
  setup.buffers.rounding.codes = multiplies_codes(setup.deck, capability);
  return setup;
}

int spared_multiprocessors(const RunSetup& setup) {
  return setup.mesh.world() > 1 ? static_cast<int>(setup.deck.machine.communication_blocks) : 0;
}

MeshGroups groups_of(const RunSetup& setup) {
  const bool sharded = setup.deck.train.zero_stage > 0;
  return {kv_copies(setup.spec, setup.mesh.tp),
          token_table_stages(setup.model_share()),
          setup.spec.E() > 0,
          row_of(setup.deck.optimizer.name).shares_matrices() || gathers_codes(setup.deck) ||
              setup.buffers.rounding.keeps_amaxes(),
          !sharded,
          sharded,
          has_expert_adapters(setup.spec),
          static_cast<int>(setup.deck.machine.communication_blocks),
          !setup.mesh.two_level_cp() || setup.spec.options.full_attention_interval > 0};
}

}  // namespace forge
