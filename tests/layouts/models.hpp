#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"

namespace forge::test {

// Models whose dimensions force remainders: 5 layers, a prime vocabulary, 2 key and value heads under tp 4 and 8,
// documents of uneven length. Each has what the others lack; together they have every option of a dense model.
struct TestModel {
  std::string name;
  Deck deck;
};
std::vector<TestModel> test_models();

// A file of tokens below `vocabulary`, made once for this process and removed at its end.
std::string token_file(std::int64_t vocabulary, std::int64_t tokens);

}  // namespace forge::test
