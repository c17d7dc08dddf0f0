#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"

namespace forge::test {

// Models whose dimensions force remainders: 5 layers, a prime vocabulary, 2 key and value heads under tp 4 and 8,
// documents of uneven length. Each has options that the others lack; together they have every option of a dense model,
// latent attention included.
struct TestModel {
  std::string name;
  Deck deck;
};
std::vector<TestModel> test_models();

// Likewise with experts: 6 of them, 2 or 3 layers without, routers of every kind, rounds of dispatch that are too small
// for the rows that arrive, capacities, shared experts; one model sends every token to one expert, one leaves an
// expert empty.
std::vector<TestModel> moe_models();
// Models with one or two depths of multi-token prediction, dense and with experts.
std::vector<TestModel> mtp_models();
// Whether layers of a deck's model may have gated DeltaNet.
bool takes_delta(const Deck& deck);
// A deck with gated DeltaNet in most layers, with heads that its tp and cp divide; sequences of one chunk, or of two or
// three.
Deck with_delta(Deck deck, std::size_t choice);
// Biases of routers (layers, E) that a model starts with here: drawn, or such that its name comes true.
std::vector<double> starting_biases(const Deck& deck);
// Whether a tensor is one of an expert that no token goes to, by these biases.
bool is_idle(const Deck& deck, const std::string& parameter);

// A file of tokens below `vocabulary`, made once for this process and removed at its end.
std::string token_file(std::int64_t vocabulary, std::int64_t tokens);

}  // namespace forge::test
