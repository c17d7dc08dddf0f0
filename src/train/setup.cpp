#include "train/setup.hpp"

#include <algorithm>

#include "schedule/generate.hpp"
#include "schedule/lower.hpp"
#include "schedule/slots.hpp"

namespace forge {

RunSetup make_setup(const Deck& deck) {
  RunSetup setup{deck, resolve_model(deck.model), {}, {}, 1, 1, {}, 1};
  setup.units = parameter_units(setup.spec);
  setup.buffers = buffer_context(deck, setup.spec);
  setup.replicas = static_cast<int>(deck.mesh.dp_replicate * deck.mesh.dp_shard);
  setup.microbatches =
      static_cast<int>(deck.train.global_batch_sequences / (deck.train.microbatch_sequences * setup.replicas));
  const Schedule compute = generate({deck.schedule.name, 1, 1, setup.microbatches, 0});
  setup.schedule = lower(compute, {deck.train.recompute != Recompute::none, false, false, false});
  setup.slots = std::max(1, assign_slots(setup.schedule, 0, Lifetime::saved_for_weight).total());
  return setup;
}

}  // namespace forge
