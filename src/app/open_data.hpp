#pragma once

#include "comm/world.hpp"
#include "train/trainer.hpp"

namespace forge {

// The data of a job, on all of its ranks. Where it is packed the first rank opens it before the others, which then find
// the plans that it made; on a file system of their own they make theirs.
TrainingData open_data(const RunSetup& setup, const World& world);

}  // namespace forge
