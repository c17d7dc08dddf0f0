#include "app/open_data.hpp"

namespace forge {

TrainingData open_data(const RunSetup& setup, const World& world) {
  if (setup.deck.data.packing == Packing::cut) return TrainingData(setup);
  world.watchdog().start_other(0, "packing");
  Heartbeat* const heartbeat = &world.watchdog().heartbeat();
  if (world.size() > 1) {
    if (world.rank() == 0) TrainingData{setup, heartbeat};
    world.make_world()->barrier();
  }
  return TrainingData(setup, heartbeat);
}

}  // namespace forge
