#include "train/setup.hpp"

#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"

namespace forge {

RowShare RunSetup::rows() const {
  return {mesh.cp, share.cp_rank, deck.mesh.cp_method,
          mesh.tp, share.tp_rank, vocabulary_rows(spec, mesh.tp, share.tp_rank)};
}

RunSetup make_setup(const Deck& deck, int rank) {
  RunSetup setup;
  setup.deck = deck;
  setup.spec = resolve_model(deck.model);
  setup.units = parameter_units(setup.spec);
  setup.mesh = resolve_mesh(deck.mesh, ranks_of(deck.mesh));
  setup.rank = rank;
  setup.microbatches = static_cast<int>(microbatches_of(deck));
  const Schedule compute = schedule_of(deck, setup.mesh.pp, setup.microbatches);
  const TrainDeck& train = deck.train;
  setup.schedule = lower(compute, {train.recompute != Recompute::none, train.zero_stage == 3,
                                   train.gather == GatherPolicy::step, train.accumulate == Accumulation::sharded});
  setup.stages = split_layers(deck.schedule.split, static_cast<int>(setup.spec.L()), compute.stages());
  setup.share = rank_share(setup.model_share(), rank);
  setup.buffers = buffer_context(deck, local_spec(setup.spec, setup.mesh.tp));
  return setup;
}

}  // namespace forge
