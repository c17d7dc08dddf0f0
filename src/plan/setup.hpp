#pragma once

#include <vector>

#include "config/batch_ramp.hpp"
#include "config/deck.hpp"
#include "layout/mesh_shape.hpp"
#include "layout/row_share.hpp"
#include "model/buffers.hpp"
#include "model/parameters.hpp"
#include "plan/rank_share.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// A run of a resolved deck on one rank, before anything is allocated.
struct RunSetup {
  Deck deck;
  ModelSpec spec;           // the whole model
  std::vector<Unit> units;  // of the whole model
  MeshShape mesh;
  int rank = 0;
  BatchSizes batches;                // by step
  int microbatches = 1;              // of one data-parallel rank and step with the largest batch
  Schedule schedule;                 // of such a step, lowered
  std::vector<Schedule> smaller;     // of steps with smaller batches, by their numbers of microbatches
  std::vector<StageContent> stages;  // by stage
  RankShare share;                   // of this rank
  BufferContext buffers;
  int capability = 0;  // of the ranks' devices, 90 for sm_90; 0: processors, or not known

  int replicas() const { return mesh.data_parallel(); }
  // Tokens of the largest batch, and of a step's batch.
  std::int64_t tokens_per_step() const { return deck.train.global_batch_sequences * deck.train.sequence_tokens; }
  std::int64_t tokens_of(std::int64_t step) const { return batches.of(step) * deck.train.sequence_tokens; }
  // Tokens of all steps up to this one.
  std::int64_t tokens_through(std::int64_t step) const { return batches.before(step + 1) * deck.train.sequence_tokens; }
  // The number of a step's schedule: 0, or 1 + its place in `smaller`.
  std::size_t schedule_number(std::int64_t step) const;
  const Schedule& schedule_of(std::int64_t step) const;
  // Scopes of the routers' auxiliary loss in a step, over all ranks: sequences or microbatches.
  double router_scopes(std::int64_t step) const;
  RowShare rows() const;
  ModelShare model_share() const { return {deck, spec, units, mesh, schedule.places, stages}; }
};

// `deck` has passed check_deck for its number of ranks.
RunSetup make_setup(const Deck& deck, int rank = 0, const KernelChoice& kernels = asked_kernels());
// Like the other one, with the deck's schedule, lowered, or one of few microbatches (schedule/repetition.hpp), and
// perhaps with parameter_units of its model, for callers that make many setups.
RunSetup make_setup(const Deck& deck, int rank, const Schedule& lowered, const KernelChoice& kernels = asked_kernels(),
                    const std::vector<Unit>* units = nullptr);
// A setup on devices of this compute capability, with the products of rounded operands there.
RunSetup on_devices(RunSetup setup, int capability);

// Multiprocessors that products leave to collectives (machine.communication_blocks); one rank has none.
int spared_multiprocessors(const RunSetup& setup);
// The groups of a mesh that follow from the model.
MeshGroups groups_of(const RunSetup& setup);

}  // namespace forge
