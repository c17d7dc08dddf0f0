// draw_decks DIRECTORY COUNT: writes COUNT decks of drawn layouts on 1 … 8 ranks, of dense models, models with experts
// and with multi-token prediction in turn, as DIRECTORY/NNN_RANKS.yaml, with the token files that they read. They train
// two steps and save the last one. tests/equal_to_commit.sh runs two versions of forge on them.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "config/write_deck.hpp"
#include "core/random.hpp"
#include "cover.hpp"
#include "layout/mesh_shape.hpp"
#include "models.hpp"

namespace forge::test {
namespace {

std::vector<LayoutCase> layouts(std::size_t count) {
  std::vector<LayoutCase> cases;
  for (std::uint64_t key = 100; cases.size() < count; ++key) {
    const int ranks = static_cast<int>(std::array{2, 8, 4, 6, 1, 3, 8}[key % 7]);
    for (const auto& list : {drawn_layouts(ranks, key), drawn_moe_layouts(ranks, key), drawn_mtp_layouts(ranks, 1)})
      for (std::size_t i = 0; i < 2 && !list.empty(); ++i) cases.push_back(list[mix(key, i) % list.size()]);
  }
  cases.resize(count);
  return cases;
}

// The file in the directory, copied there at its first use.
std::string kept(const std::filesystem::path& directory, const std::string& file, std::int64_t vocabulary) {
  const auto copy = directory / ("tokens_" + std::to_string(vocabulary) + ".bin");
  if (!std::filesystem::exists(copy)) std::filesystem::copy_file(file, copy);
  return copy;
}

int run(const std::filesystem::path& directory, std::size_t count) {
  constexpr std::array precisions{PrecisionName::fp64, PrecisionName::fp32, PrecisionName::bf16, PrecisionName::fp64};
  std::size_t number = 0;
  for (const LayoutCase& c : layouts(2 * count)) {
    if (number == count) break;
    Deck deck = c.deck;
    deck.train.precision = precisions[number % precisions.size()];
    if (number % 3 == 0 && deck.train.precision != PrecisionName::fp64) deck.optimizer.moments = StateType::bf16;
    deck.train.steps = 2;
    deck.data.files = {kept(directory, token_file(deck.model.vocabulary, 4097), deck.model.vocabulary)};
    if (!illegality(deck).empty()) continue;
    char name[64];
    std::snprintf(name, sizeof name, "%03zu_%lld.yaml", number++, static_cast<long long>(ranks_of(deck.mesh)));
    std::ofstream(directory / name) << "# " << c.name << "\n" << write_deck(deck);
  }
  return number == count ? 0 : 1;
}

}  // namespace
}  // namespace forge::test

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: draw_decks DIRECTORY COUNT\n");
    return 2;
  }
  return forge::test::run(argv[1], static_cast<std::size_t>(std::atoi(argv[2])));
}
