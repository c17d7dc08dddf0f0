#pragma once

#include <chrono>
#include <cstddef>

#include "app/job.hpp"
#include "train/leaving.hpp"
#include "train/training_log.hpp"

namespace forge {

// What was before a run.
struct RunBegin {
  std::chrono::steady_clock::time_point time;
  std::size_t outside;  // bytes on the host: libraries, MPI
};

// Before a run: throws BadInput where it couldn't write what the deck asks for at its end.
void check_outputs(const Deck& deck);

// What a run tells at its end (times, memory, traffic) and writes as the deck asks: a sample, the trained model. All
// ranks; the first one has the directory. Where the job leaves, sample and model are broken off, and LeftOnSignal
// thrown on all ranks; `leaving`: null where nothing is saved, so that signals end the job themselves.
template <class T>
void write_outputs(Job<T>& job, const World& world, const RunBegin& begin, const RunDirectory* directory,
                   const TrainingLog& log, Leaving* leaving);

}  // namespace forge
