#include "app/open_data.hpp"

namespace forge {

TrainingData open_data(const RunSetup& setup, const World& world) {
  if (setup.deck.data.packing == Packing::cut || world.size() == 1) return TrainingData(setup);
  world.watchdog().start_other(0, "packing");
  if (world.rank() == 0) TrainingData{setup};
  world.make_world()->barrier();
  return TrainingData(setup);
}

}  // namespace forge
