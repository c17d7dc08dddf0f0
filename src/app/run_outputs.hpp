#pragma once

#include <chrono>
#include <cstddef>

#include "app/job.hpp"
#include "train/leaving.hpp"
#include "train/training_log.hpp"

namespace forge {

// Time and memory before a run.
struct RunBegin {
  std::chrono::steady_clock::time_point time;
  std::size_t outside;  // bytes on the host: libraries, MPI
};

// Before a run: throws BadInput where the outputs that the deck asks for at its end couldn't be written.
void check_outputs(const Deck& deck);

// A run's report at its end (times, memory, traffic), and the outputs of the deck: a sample, the trained model. All
// ranks; the first one has the directory. Where the job leaves, sample and model are broken off, and LeftOnSignal is
// thrown on all ranks; `leaving`: null where nothing is saved, so that signals end the job themselves.
template <class T>
void write_outputs(Job<T>& job, const World& world, const RunBegin& begin, const RunDirectory* directory,
                   const TrainingLog& log, Leaving* leaving);

}  // namespace forge
