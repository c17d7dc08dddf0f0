#include "control_plane.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/together.hpp"
#include "comm/agreement.hpp"
#include "comm/thread_communicator.hpp"
#include "config/write_deck.hpp"
#include "train/restart.hpp"

// The program's own control plane on meshes of up to 16,384 ranks, which are fibers of one thread.

namespace forge::test {
namespace {

namespace fs = std::filesystem;

// In memory where there is such a place: every shard is forced to the disk.
struct ScaleScratch {
  fs::path path = (fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                  ("forge_scale_" + std::to_string(getpid()));
  ScaleScratch() { fs::create_directories(path); }
  ~ScaleScratch() { fs::remove_all(path); }
  ScaleScratch(const ScaleScratch&) = delete;
  ScaleScratch& operator=(const ScaleScratch&) = delete;
};

std::vector<int> sizes() {
  const char* const text = std::getenv("FORGE_LONG");
  if (text && std::string(text) == "1") return {64, 256, 1024, 4096, 16384};
  return {64, 256, 1024, 4096};
}

CheckpointFacts facts_of(const Deck& deck, std::int64_t step) {
  CheckpointFacts facts;
  facts.step = step;
  facts.ranks = ranks_of(deck.mesh);
  facts.deck = write_deck(deck);
  facts.build = facts.data = "none";
  return facts;
}

// Each group has the ranks that the mesh's arithmetic says, in its order.
std::int64_t wrong_groups(Mesh& mesh) {
  const MeshShape& shape = mesh.shape();
  std::int64_t wrong = 0;
  const auto check = [&](Communicator& group, AxisBits axes) {
    wrong += group.size() != shape.dense().group_size(axes) || group.rank() != mesh.index(axes);
    std::int64_t sum = group.rank();
    group.sum_host({&sum, 1});
    wrong += sum != std::int64_t{group.size()} * (group.size() - 1) / 2;
  };
  check(mesh.tp(), bits_of({Axis::tp}));
  check(mesh.cp(), bits_of({Axis::cp}));
  check(mesh.pipeline(), bits_of({Axis::pp}));
  check(mesh.of(Group::gradient_replicas), bits_of({Axis::dp_replicate}));
  check(mesh.of(Group::gradient_shards), shard_axes);
  check(mesh.data(), data_axes);
  return wrong;
}

// The job that writes: mesh and groups, agreement, two saves of which the second one removes the first, the end.
void run_and_save(const Setups& setups, const std::string& directory, Costs& costs) {
  const int n = static_cast<int>(ranks_of(setups.deck().mesh));
  Watchdog watchdog({0, 0}, "test", [](const Watchdog::Missed&) {});
  const std::string text = write_deck(setups.deck());
  std::int64_t wrong = 0, elements = 0;
  run_fibers(n, [&](Communicator& ranks) {
    const ScaleWorld world(ranks, watchdog);
    const HostTraffic& traffic = ranks.host_traffic();
    std::optional<ScaleState> state;
    std::unique_ptr<Mesh> mesh;
    {
      const RunSetup setup = setups.of(ranks.rank());
      state.emplace(setup, StateUse::write);
      state->fill();
      elements += static_cast<std::int64_t>(bytes_of(state->tensors()) / sizeof(float));
      costs.measure("mesh", traffic,
                    [&] { mesh = std::make_unique<Mesh>(world.make_world(), setup.mesh, groups_of(setup)); });
    }
    wrong += wrong_groups(*mesh);
    costs.measure("agreement", traffic, [&] { agree_on({{"the deck", text, "read the same"}}, world); });
    Stream stream(1);
    std::optional<CheckpointSaver> saver;
    costs.measure("groups of a save", traffic, [&] {
      saver.emplace(mesh->world(), SavePlan{directory, 1, 0, {}}, false);
    });
    costs.measure("save", traffic, [&] { saver->save(facts_of(setups.deck(), 1), state->tensors(), stream); });
    if (n <= 1024)
      costs.measure("save, read back, prune", traffic,
                    [&] { saver->save(facts_of(setups.deck(), 2), state->tensors(), stream); });
    costs.measure("end", traffic, [&] { mesh->world().barrier(); });
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(elements, 16 * 60'000);
  EXPECT_EQ(committed_steps(directory).size(), 1u);
}

// The job that goes on from there on half as many ranks: every element of each of them is what was written.
void restart_on_half(const Setups& setups, Costs& costs) {
  std::int64_t wrong = 0, elements = 0;
  std::vector<std::string> said;
  run_fibers(static_cast<int>(ranks_of(setups.deck().mesh)), [&](Communicator& ranks) {
    ScaleState state(setups.of(ranks.rank()), StateUse::read);
    Stream stream(1);
    std::vector<std::string> notes;
    costs.measure("restart", ranks.host_traffic(), [&] {
      const std::string from = load_model(ranks, stream, state.tensors(), setups.deck(), notes, nullptr);
      if (ranks.rank() == 0) said = {from};
    });
    said.insert(said.end(), notes.begin(), notes.end());
    wrong += state.wrong();
    elements += static_cast<std::int64_t>(bytes_of(state.tensors()) / sizeof(float));
  });
  EXPECT_EQ(wrong, 0) << "of " << elements << " elements";
  EXPECT_GT(elements, 16 * 60'000);
  EXPECT_EQ(said.size(), 1u) << said.back();
}

// Files of a step's manifest.
struct ManifestSizes {
  std::int64_t root = 0, largest = 0;  // bytes
  int pieces = 0;
};

ManifestSizes sizes_of_manifest(const fs::path& step) {
  ManifestSizes sizes;
  for (const auto& entry : fs::directory_iterator(step)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("manifest") || entry.path().extension() != ".h5") continue;
    const auto bytes = static_cast<std::int64_t>(entry.file_size());
    sizes.largest = std::max(sizes.largest, bytes);
    if (name == manifest_name)
      sizes.root = bytes;
    else
      ++sizes.pieces;
  }
  return sizes;
}

// ⌈log₂ n⌉.
std::int64_t rounds_of(std::int64_t n) {
  return std::bit_width(static_cast<std::uint64_t>(n - 1));
}

// How the messages and bytes of the busiest rank grow. docs/notes/checkpoint.md has the laws.
void expect_laws(const Costs& costs, std::int64_t n, const ManifestSizes& sizes) {
  const std::int64_t log = rounds_of(n), half = rounds_of(n / 2);
  const bool in_pieces = n > most_shards_of_piece;
  const auto expect = [&](const char* part, std::int64_t messages, std::int64_t bytes) {
    EXPECT_EQ(costs.of(part).messages, messages) << part << ", " << n << " ranks";
    EXPECT_EQ(costs.of(part).bytes, bytes) << part << ", " << n << " ranks";
  };
  // 11 groups are split off, of which ranks learn of each other's colors; two numbers a fact; one.
  expect("mesh", 22 * log, 176 * (n - 1));
  expect("agreement", 4 * log, 16 * (n - 1) + 32 * log);
  expect("groups of a save", in_pieces ? 6 * log : 2 * log, in_pieces ? 48 * (n - 1) : 16 * (n - 1));
  expect("end", 2 * log, 16 * log);
  EXPECT_EQ(sizes.pieces, in_pieces ? n / most_shards_of_piece : 0);
  // One rank hears of 63 shards, and of the other pieces; a piece has as many bytes, whatever the number of ranks.
  const Cost& save = costs.of("save");
  EXPECT_EQ(save.messages, in_pieces ? 16 * log + 63 + n / 64 - 1 : 14 * log + 63);
  EXPECT_LE(save.bytes, 3 * sizes.largest + sizes.root + 1024 * log);
  if (n <= 1024) {
    EXPECT_EQ(costs.of("save, read back, prune").messages, save.messages + 9 * log);
  }
  // The root's tables have rows of pieces and of the tensors that each has: a stage's, nine a layer.
  const std::int64_t tensors = 9 * 16 / deck_of(static_cast<int>(n)).mesh.pp + 4;
  if (in_pieces) {
    EXPECT_LE(sizes.root, 60'000 + (n / 64) * (72 + tensors * 88));
    EXPECT_LE(sizes.largest, std::max<std::int64_t>(sizes.root, 400'000));
  }
  // A node's first rank hands out the root and the pieces that its ranks' boxes reach: of two stages, of all replicas.
  const Cost& restart = costs.of("restart");
  const std::int64_t most_pieces = 48;
  EXPECT_LE(restart.messages, 26 * half + 12 + 6 * most_pieces);
  EXPECT_LE(restart.bytes, 3 * (sizes.root + most_pieces * sizes.largest) + 16 * n + 65'536);
}

void print(const Costs& costs, int n, const ManifestSizes& sizes) {
  for (const auto& [part, cost] : costs.all())
    std::printf("%6d  %-24s %10.3f %10lld %14lld\n", n, part.c_str(), cost.end - cost.begin,
                static_cast<long long>(cost.messages), static_cast<long long>(cost.bytes));
  std::printf("%6d  manifest.h5 %lld bytes, %d pieces, the largest of all %lld\n", n,
              static_cast<long long>(sizes.root), sizes.pieces, static_cast<long long>(sizes.largest));
  std::fflush(stdout);
}

TEST(ControlPlane, SavesAndRestartsOnHalfTheRanks) {
  setenv("FORGE_RANKS_PER_NODE", std::to_string(ranks_of_node).c_str(), 1);
  std::printf("%6s  %-24s %10s %10s %14s\n", "ranks", "part", "seconds", "messages", "bytes");
  for (const int n : sizes()) {
    const ScaleScratch scratch;
    Costs costs;
    Deck half = deck_of_half(n);
    run_and_save(Setups(deck_of(n)), scratch.path, costs);
    const fs::path step = committed_steps(scratch.path).front().path;
    EXPECT_EQ(verify_checkpoint(step, 1), std::vector<std::string>{});
    half.checkpoint.model_from = step;
    restart_on_half(Setups(half), costs);
    const ManifestSizes files = sizes_of_manifest(step);
    print(costs, n, files);
    expect_laws(costs, n, files);
  }
  unsetenv("FORGE_RANKS_PER_NODE");
}

enum class FaultKind { other_deck, failing_file, exception, failing_save };

// What the others say of a fault of the rank.
std::string expected_text(FaultKind kind, int rank) {
  const std::string name = "rank " + std::to_string(rank);
  switch (kind) {
    case FaultKind::other_deck:
      return "the deck of " + name + " on node" + std::to_string(rank / ranks_of_node) + " differs from that of rank ";
    case FaultKind::failing_file:
    case FaultKind::failing_save:
      return "checkpoint: no luck (" + name + ")";
    case FaultKind::exception:
      return "another rank failed: " + name + ": no luck";
  }
  return "";
}

// One in 16 ranks has something to save.
void save_one_element(Communicator& ranks, const std::string& directory, bool fails) {
  float element = 1;
  std::vector<StateTensor> state;
  if (fails || ranks.rank() % 16 == 0)
    state.push_back({"parameters/of_rank_" + std::to_string(ranks.rank()),
                     DType::f32,
                     {1},
                     0,
                     {{{{0}, {1}}, fails ? nullptr : reinterpret_cast<std::byte*>(&element)}}});
  ManifestWriter manifests(ranks, most_shards_of_piece);
  std::string index;
  together(ranks, [&] {
    index = to_text(write_shard(directory, ranks.rank(), state, [](void* to, const void* from, std::size_t bytes) {
      if (!from) throw IoFailed("no luck");
      std::memcpy(to, from, bytes);
    }));
  });
}

// Whether every rank that hears of the fault says whose it is.
bool named_by_all(int n, FaultKind kind, int odd) {
  const ScaleScratch scratch;
  Watchdog watchdog({0, 0}, "test", [](const Watchdog::Missed&) {});
  const std::string expected = expected_text(kind, odd);
  int right = 0;
  try {
    run_fibers(n, [&](Communicator& ranks) {
      const ScaleWorld world(ranks, watchdog);
      const bool mine = ranks.rank() == odd;
      const auto node = ranks.node();
      try {
        if (kind == FaultKind::other_deck)
          agree_on({{"the deck", mine ? "a: 2\n" : "a: 1\n", "read the same"}}, world);
        else if (kind == FaultKind::failing_file)
          together(ranks, [&] {
            if (mine) throw IoFailed("no luck");
          });
        else if (kind == FaultKind::failing_save)
          save_one_element(ranks, scratch.path, mine);
        else if (mine)
          throw std::runtime_error("no luck");
        else
          ranks.barrier();
      } catch (const Error& error) {
        right += std::string(error.what()).find(expected) != std::string::npos;
      }
    });
  } catch (const std::runtime_error& error) {
    right += kind == FaultKind::exception && std::string(error.what()) == "no luck";
  }
  return right == n;
}

TEST(ControlPlane, NamesTheRankOfAFault) {
  setenv("FORGE_RANKS_PER_NODE", std::to_string(ranks_of_node).c_str(), 1);
  for (const int n : {8, 4096}) {
    int named = 0;
    for (std::uint64_t draw = 0; draw < 20; ++draw)
      named += named_by_all(n, static_cast<FaultKind>(draw % 4),
                            static_cast<int>(mix(static_cast<std::uint64_t>(n), draw) % static_cast<std::uint64_t>(n)));
    EXPECT_EQ(named, 20) << "of " << n << " ranks";
  }
  unsetenv("FORGE_RANKS_PER_NODE");
}

}  // namespace
}  // namespace forge::test
