#include "plan/setup.hpp"

#include "config/optimizer_table.hpp"
#include "nn/units.plan.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"
#include "schedule/validate.hpp"

namespace forge {

RowShare RunSetup::rows() const {
  return {mesh.cp,
          share.cp_rank,
          deck.mesh.cp_method,
          mesh.tp,
          share.tp_rank,
          vocabulary_rows(spec, mesh.tp, share.tp_rank),
          static_cast<int>(spec.options.mtp_depth),
          !deck.data.sources.empty(),
          deck.data.restarts_positions()};
}

double RunSetup::router_scopes() const {
  const auto sequences = static_cast<double>(deck.train.global_batch_sequences);
  return spec.options.auxiliary_loss_scope == AuxiliaryScope::sequence
             ? sequences
             : sequences / static_cast<double>(deck.train.microbatch_sequences);
}

RunSetup make_setup(const Deck& deck, int rank, const Schedule& lowered) {
  RunSetup setup;
  setup.deck = deck;
  setup.spec = resolve_model(deck.model);
  setup.units = parameter_units(setup.spec);
  check_groups(deck.optimizer, setup.units);
  setup.mesh = resolve_mesh(deck.mesh, ranks_of(deck.mesh));
  setup.rank = rank;
  setup.microbatches = static_cast<int>(microbatches_of(deck));
  setup.schedule = lowered;
  setup.stages = split_layers(deck.schedule.split, static_cast<int>(setup.spec.L()), lowered.stages(),
                              static_cast<int>(setup.spec.options.mtp_depth));
  setup.share = rank_share(setup.model_share(), rank);
  setup.buffers = buffer_context(deck, local_spec(setup.spec, setup.mesh.tp, setup.mesh.etp));
  return setup;
}

RunSetup make_setup(const Deck& deck, int rank) {
  const Schedule lowered =
      lower(schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(microbatches_of(deck))));
  validate(lowered);
  return make_setup(deck, rank, lowered);
}

MeshGroups groups_of(const RunSetup& setup) {
  return {kv_copies(setup.spec, setup.mesh.tp), token_table_stages(setup.model_share()), setup.spec.E() > 0,
          row_of(setup.deck.optimizer.name).shares_matrices()};
}

}  // namespace forge
