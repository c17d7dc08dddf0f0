#pragma once

#include "schedule/check_deck.hpp"
#include "support.hpp"

// A small deck, and how it is held to the rules with a change.

namespace forge::test {

inline Deck small_deck() {
  Deck deck;
  deck.model.layers = 2;
  deck.model.width = 32;
  deck.model.heads = 4;
  deck.model.ffn = 64;
  deck.model.vocabulary = 256;
  deck.train.steps = 10;
  deck.train.global_batch_sequences = 8;
  deck.train.microbatch_sequences = 2;
  deck.train.sequence_tokens = 16;
  deck.optimizer.learning_rate = 1e-3;
  deck.data.files = {"a.npy"};
  deck.output.directory = "runs/x";
  return deck;
}

template <class Change>
void expect_refused(Change&& change, std::initializer_list<const char*> parts, int world = 1) {
  Deck deck = small_deck();
  change(deck);
  expect_bad_input([&] { check_deck(deck, world); }, parts);
}

template <class Change>
Deck checked(Change&& change, int world = 1, Needs needs = Needs::training) {
  Deck deck = small_deck();
  change(deck);
  check_deck(deck, world, needs);
  return deck;
}

}  // namespace forge::test
