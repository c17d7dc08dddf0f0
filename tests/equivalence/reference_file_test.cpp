#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "comm/thread_communicator.hpp"
#include "core/error.hpp"
#include "models.hpp"
#include "pair_files.hpp"
#include "plan/memory.hpp"
#include "run_threads.hpp"
#include "train/references.hpp"

// The file of the reference's log-probabilities: the same from any layout, whole, and of one model and its data.

namespace forge::test {
namespace {

constexpr std::size_t header_bytes = 32, texts = 4 * pairs_of_file;

Deck deck_of(const Directory& dir) {
  Deck deck = test_models()[0].deck;
  deck.data.validation_files = {"held out"};  // which with_pairs() replaces
  deck.train.validate_every_steps = 1;
  return with_pairs(deck, dir);
}

Deck on_axes(Deck deck, std::int64_t pp, std::int64_t dp, std::int64_t cp, std::int64_t tp) {
  MeshDeck mesh;
  mesh.pp = pp, mesh.dp_shard = dp, mesh.cp = cp, mesh.tp = tp;
  deck = layout_deck(deck, mesh, {}, 0);
  EXPECT_EQ(illegality(deck), "");
  return deck;
}

// What a start says of the file; the error, where there is one.
std::string make(const Deck& deck, const std::string& path) {
  std::string said;
  std::mutex mutex;
  const auto of_rank = [&](Communicator& world) {
    const RunSetup setup = make_setup(deck, world.rank());
    Mesh mesh(world.duplicate(), setup.mesh, groups_of(setup));
    const MemoryPlan plan =
        plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, RunKind::training);
    Session<double> session(setup, plan.total(), RunKind::training, mesh, 1);
    session.initialise();
    TrainingData data(setup);
    const std::string line = make_references(session, data, path, check_references(session, data, path));
    read_references(path, data);
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) said = line;
  };
  try {
    run_ranks(static_cast<int>(ranks_of(deck.mesh)), of_rank);
  } catch (const BadInput& error) {
    return error.what();
  }
  return said;
}

std::vector<double> values_of(const std::string& bytes) {
  std::vector<double> values(texts);
  EXPECT_EQ(bytes.size(), header_bytes + 8 * (texts + 1));
  std::memcpy(values.data(), bytes.data() + header_bytes, 8 * texts);
  return values;
}

TEST(ReferenceFile, IsTheSameFromAnyLayout) {
  const Directory dir;
  const Deck deck = deck_of(dir);
  EXPECT_NE(make(on_axes(deck, 1, 1, 1, 1), dir / "one").find("of which 0 were there"), std::string::npos);
  const std::string one = read_text(dir / "one");
  const std::vector<double> wanted = values_of(one);
  for (const Deck& layout :
       {on_axes(deck, 1, 1, 2, 2), on_axes(deck, 2, 2, 1, 1), on_axes(deck, 1, 3, 1, 1), on_axes(deck, 2, 1, 2, 2)}) {
    make(layout, dir / "other");
    const std::string other = read_text(dir / "other");
    EXPECT_EQ(other.substr(0, header_bytes), one.substr(0, header_bytes)) << text_of(layout);
    const std::vector<double> values = values_of(other);
    for (std::size_t i = 0; i < texts; ++i) EXPECT_NEAR(values[i], wanted[i], 1e-11 * (1 + std::abs(wanted[i])));
    std::filesystem::remove(dir / "other");
  }
}

TEST(ReferenceFile, GoesOnWhereAStartWasKilled) {
  const Directory dir;
  const Deck deck = on_axes(deck_of(dir), 1, 1, 1, 1);
  make(deck, dir / "whole");
  const std::string whole = read_text(dir / "whole");
  for (const std::size_t done : {std::size_t{0}, std::size_t{7}, texts / 2 + 3, texts}) {
    write_text(dir / "cut.partial", whole.substr(0, header_bytes + 8 * done + 5));
    const std::string said = make(deck, dir / "cut");
    EXPECT_NE(said.find("of which " + std::to_string(done / 2 * 2) + " were there"), std::string::npos) << said;
    EXPECT_EQ(read_text(dir / "cut"), whole);
    EXPECT_FALSE(std::filesystem::exists(dir / "cut.partial"));
    EXPECT_EQ(make(deck, dir / "cut").find("were there"), std::string::npos) << "the whole file is made again";
    std::filesystem::remove(dir / "cut");
  }
}

// Adapters as they are drawn add nothing: the reference is the frozen base, and runs with and without them, of any
// rank, share its file.
TEST(ReferenceFile, IsOfTheBaseBesideAdapters) {
  const Directory dir;
  const Deck deck = deck_of(dir);
  make(on_axes(deck, 1, 1, 1, 1), dir / "file");
  const std::string base = read_text(dir / "file");
  Deck adapted = deck;
  adapted.model.adapter.name = AdapterName::lora;
  for (const std::int64_t rank : {2, 5}) {
    adapted.model.adapter.rank = rank;
    const std::string said = make(on_axes(adapted, 2, 1, 2, 2), dir / "file");
    EXPECT_NE(said.find("log-probabilities of 160 texts"), std::string::npos) << said;
    EXPECT_EQ(said.find("were there"), std::string::npos) << said;
    make(on_axes(adapted, 1, 1, 1, 1), dir / "own");
    EXPECT_EQ(read_text(dir / "own"), base);
    std::filesystem::remove(dir / "own");
  }
}

TEST(ReferenceFile, IsOfOneModelAndItsData) {
  const Directory dir, elsewhere;
  const Deck deck = on_axes(deck_of(dir), 1, 1, 1, 1);
  make(deck, dir / "file");
  Deck other = deck;
  other.train.seed = 8;
  EXPECT_NE(make(other, dir / "file").find("other weights"), std::string::npos);
  for (const auto& change :
       {+[](Deck& d) { d.model.rope_theta = 100; }, +[](Deck& d) { d.model.attention_soft_cap = 5; }}) {
    other = deck;
    change(other);
    EXPECT_NE(make(other, dir / "file").find("by another model"), std::string::npos);
  }
  other = deck;
  other.data.files = {write_pairs(elsewhere, 5).tokens};
  other.data.mask_files = {elsewhere / "pairs_5.npy"};
  EXPECT_NE(make(other, dir / "file").find("of other pairs"), std::string::npos);
  other = deck;
  other.data.mask_files.clear();
  EXPECT_NE(make(other, dir / "file").find("of other pairs"), std::string::npos);
  std::string mask = read_text(deck.data.mask_files[0]);
  std::fill(mask.end() - static_cast<std::ptrdiff_t>(mask.size() / 2), mask.end(), '\0');
  write_text(elsewhere / "half.npy", mask);
  other.data.mask_files = {elsewhere / "half.npy"};
  EXPECT_NE(make(other, dir / "another").find("text has no label"), std::string::npos);
  std::string bytes = read_text(dir / "file");
  bytes[header_bytes + 3] ^= 1;
  write_text(dir / "file", bytes);
  EXPECT_NE(make(deck, dir / "file").find("is damaged"), std::string::npos);
  write_text(dir / "file", bytes.substr(0, bytes.size() - 8));
  EXPECT_NE(make(deck, dir / "file").find("log-probabilities for the 160 texts"), std::string::npos);
  write_text(dir / "file", bytes.substr(0, 20));
  EXPECT_NE(make(deck, dir / "file").find("ends within the header"), std::string::npos);
}

}  // namespace
}  // namespace forge::test
