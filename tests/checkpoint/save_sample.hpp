#pragma once

#include "checkpoint/save.hpp"
#include "comm/thread_communicator.hpp"
#include "sample.hpp"

namespace forge::test {

// The outcome of a save of two ranks.
struct Outcome {
  std::vector<std::string> thrown = std::vector<std::string>(2);  // by rank, "" nothing
  std::vector<std::string> notes;
};

// Two ranks, threads, save a step of the sample, of which each holds a part.
inline Outcome save_on_two_ranks(const std::string& directory, std::int64_t step, bool asynchronous) {
  Outcome outcome;
  run_ranks(2, [&](Communicator& ranks) {
    SamplePieces pieces;
    for (const SampleTensor& tensor : sample_tensors()) {
      const auto parts = cut(tensor.shape, 2, mix(7, hash_of(tensor.name)));
      pieces.add(tensor, parts[static_cast<std::size_t>(ranks.rank())], true);
    }
    Stream stream(1);
    const DevicePieces on_device(pieces, stream);
    CheckpointSaver saver(ranks, {directory, 2, 0, {2048}}, asynchronous);
    try {
      saver.save(sample_facts(step), on_device.tensors, stream);
      saver.finish();
    } catch (const IoFailed& error) {
      outcome.thrown[static_cast<std::size_t>(ranks.rank())] = error.what();
    }
    if (ranks.rank() == 0) outcome.notes = saver.take_notes();
  });
  return outcome;
}

}  // namespace forge::test
