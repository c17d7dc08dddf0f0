#pragma once

#include <vector>

#include "config/deck.hpp"
#include "model/buffers.hpp"
#include "model/parameters.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// What a resolved deck says of a run, before anything is allocated.
struct RunSetup {
  Deck deck;
  ModelSpec spec;
  std::vector<Unit> units;
  BufferContext buffers;
  int replicas = 1;      // data-parallel ranks: dp_replicate · dp_shard
  int microbatches = 1;  // of one rank and step
  Schedule schedule;     // lowered
  int slots = 1;         // microbatches in flight

  std::int64_t tokens_per_step() const { return deck.train.global_batch_sequences * deck.train.sequence_tokens; }
};

// `deck` has passed check_deck.
RunSetup make_setup(const Deck& deck);

}  // namespace forge
