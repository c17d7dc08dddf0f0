#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "../equivalence/models.hpp"
#include "../long_run.hpp"
#include "config/read.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "core/in_parallel.hpp"
#include "core/to_size.hpp"
#include "plan/placement.hpp"
#include "plan/setup.hpp"
#include "predict/prediction.hpp"
#include "schedule/check_deck.hpp"

namespace forge::test {
namespace {

std::vector<std::filesystem::path> files_of(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".yaml" && entry.path().stem() != "this") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Whether the machine has rates of the deck's types.
bool has_rates(const Machine& machine, const RunSetup& setup) {
  try {
    machine.rates(setup.buffers.precision.compute);
    return true;
  } catch (const BadInput&) {
    return false;
  }
}

// No shipped deck is predicted to be faster on any machine than its fullest link.
TEST(Wire, AStepTakesAtLeastWhatItNeedsOfEachLink) {
  std::vector<std::pair<std::filesystem::path, std::string>> pairs;
  for (const auto& machine : files_of("inputs/machines"))
    for (const auto& deck : files_of("inputs")) pairs.emplace_back(deck, machine.stem());
  const auto some = thinned(pairs, 11);
  std::atomic<int> compared = 0, limited = 0;
  in_parallel(some.size(), [&](std::size_t i) {
    const auto& [file, name] = some[i];
    Deck deck = read_deck(read_text_file(file, 1 << 20, "deck"), file, {});
    check_deck(deck, static_cast<int>(ranks_of(deck.mesh)));
    const Machine machine = read_machine(name);
    const RunSetup setup = on_devices(make_setup(deck), machine.capability);
    const bool one_node = machine.between_nodes.empty() && setup.mesh.world() > machine.ranks_per_node;
    if (one_node || !has_rates(machine, setup)) return;
    const Prediction p = predict(machine, setup);
    const double most = *std::max_element(p.wire.begin(), p.wire.end());
    EXPECT_GE(p.seconds, most * (1 - 1e-9)) << file << " on " << name;
    EXPECT_EQ(most > 0, setup.mesh.world() > 1) << file << " on " << name;
    limited += most > 0.9 * p.seconds;
    ++compared;
  });
  EXPECT_GT(compared, third_volume() ? 10 : 30);
  EXPECT_GE(limited, long_run() ? 10 : 0);
}

// Where gathers and sums are all that takes time, the step is their sum on the network, not the longer of both.
TEST(Wire, GathersAndSumsShareTheNetwork) {
  const std::string file = "inputs/70b_32gpu_tp4.yaml";
  Deck deck = read_deck(read_text_file(file, 1 << 20, "deck"), file, {});
  check_deck(deck, 32);
  Machine machine = read_machine("h200_4");
  machine.compute_speed = 100;
  machine.host_launch = machine.step_seconds = 0;
  const Prediction p = predict(machine, make_setup(deck));
  const double nic = p.wire[to_size(Link::nic_out)];
  EXPECT_GT(nic, 10);
  EXPECT_EQ(nic, p.wire[to_size(Link::nic_in)]);
  EXPECT_GE(p.seconds, nic);
  EXPECT_LT(p.seconds, 1.15 * nic);
}

// Groups whose sizes don't divide those of nodes lie otherwise from node to node: the worst of a stage counts.
TEST(Wire, WorstGroupsOfAStage) {
  MeshShape mesh;
  mesh.dp_shard = 4;
  mesh.tp = mesh.etp = 6;
  mesh.edp = 4;
  EXPECT_EQ(placements(mesh, 0, {}, 8)[to_size(Group::tp)].nodes, 1);
  EXPECT_EQ(worst_placements(mesh, 0, {}, 8)[to_size(Group::tp)].nodes, 2);  // ranks 6 to 11
  EXPECT_EQ(worst_placements(mesh, 0, {}, 8)[to_size(Group::tp)].near, 2);
  EXPECT_EQ(worst_placements(mesh, 0, {}, 12)[to_size(Group::tp)].nodes, 1);
  mesh.pp = 2;
  mesh.dp_shard = 1;
  mesh.edp = 1;
  EXPECT_EQ(worst_placements(mesh, 0, {}, 8)[to_size(Group::tp)].nodes, 1);
  EXPECT_EQ(worst_placements(mesh, 1, {}, 8)[to_size(Group::tp)].nodes, 2);
  MeshShape domains;  // experts over domains of 72
  domains.dp_shard = 128;
  domains.ep = 64;
  domains.edp = 2;
  EXPECT_EQ(worst_placements(domains, 0, {}, 72)[to_size(Group::ep)].nodes, 2);
  EXPECT_EQ(worst_placements(domains, 0, {}, 64)[to_size(Group::ep)].nodes, 1);
}

// In pairs collectives of tp leave the compute stream, and nothing is lost: each task's computation counts once, and
// the stream of exchanges has the rest.
TEST(Wire, PairsOfPassesHideCollectivesOfLayers) {
  Machine machine = read_machine("h100_8");
  machine.host_launch = 0;  // of a small model the host would bind
  Deck deck = test_models().front().deck;
  deck.train.precision = PrecisionName::bf16;
  deck.train.head_chunk_rows = 0;
  deck.model.tied_embeddings = false;
  deck.mesh.tp = 2;
  deck.train.microbatch_sequences = 1;
  check_deck(deck, 2);
  const Prediction alone = predict(machine, make_setup(deck));
  deck.train.overlap = Overlap::pairs;
  const Prediction pairs = predict(machine, make_setup(deck));
  const auto part = [](const Prediction& p, CostPart of) { return p.part[to_size(static_cast<int>(of))]; };
  for (const CostPart of : {CostPart::products, CostPart::attention, CostPart::rows, CostPart::optimizer})
    EXPECT_NEAR(part(pairs, of), part(alone, of), 1e-9 * part(alone, of)) << name_of(of);
  const double exchanged = pairs.behind[to_size(Lane::exchanges)];
  EXPECT_GT(exchanged, 0.5 * part(alone, CostPart::tp));
  EXPECT_NEAR(part(pairs, CostPart::tp) + exchanged, part(alone, CostPart::tp), 0.02 * part(alone, CostPart::tp));
  EXPECT_LT(pairs.seconds, alone.seconds);
}

}  // namespace
}  // namespace forge::test
