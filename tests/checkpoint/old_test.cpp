#include <gtest/gtest.h>

#include <cmath>

#include "comm/thread_communicator.hpp"
#include "config/read.hpp"
#include "config/reference.hpp"
#include "config/text.hpp"
#include "restarts.hpp"

// Checkpoints that earlier versions wrote (old/README.md) restart, on the layout that wrote them and on others.

namespace forge::test {
namespace {

constexpr std::int64_t saved_step = 3, last_step = 6;
const std::string old_folder = std::string(FORGE_SOURCE_DIR) + "/tests/checkpoint/old/";

struct Old {
  const char* name;
  std::size_t tensors;          // as tensors.sha256 lists them: parameters, moments, other state
  std::vector<Layout> layouts;  // the first wrote it
};

std::vector<Old> old_checkpoints() {
  return {{"dense",
           3 * (2 * 9 + 3),
           {{"dp_shard 2, tp 2, zero 1", {1, 1, 2, 1, 2}, 1},
            {"one rank", {1, 1, 1, 1, 1}},
            {"pp 2, cp 2, zero 3", {2, 1, 1, 2, 1}, 3}}},
          {"experts",
           3 * (9 + 3 + 9 + 4 + 3 + 3) + 1,
           {{"ep 2, zero 1", {1, 1, 2, 1, 1, 2, 1}, 1},
            {"one rank", {1, 1, 1, 1, 1, 1, 1}},
            {"pp 2, tp 2, ep 2, zero 3", {2, 1, 1, 1, 2, 2, 1}, 3}}},
          {"multi_token",
           3 * (11 + 2 * (11 + 4) + 2),
           {{"pp 2", {2, 1, 1, 1, 1}}, {"one rank", {1, 1, 1, 1, 1}}, {"replicas, zero 3", {1, 2, 2, 1, 1}, 3}}},
          {"pieces",
           3 * (2 * 9 + 3),
           {{"132 ranks", {2, 22, 3, 1, 1}, 3}, {"one rank", {1, 1, 1, 1, 1}}, {"tp 2, zero 1", {1, 1, 3, 1, 2}, 1}}}};
}

class OldCheckpoints : public testing::TestWithParam<std::size_t> {
 protected:
  Deck deck_of(const Layout& layout) const {
    const std::string file = folder_ + "deck.yaml";
    Deck deck = read_deck(read_text_file(file, 1 << 20, "deck"), file, {});
    deck.data.files = {old_folder + "tokens.bin"};
    deck.checkpoint.directory = scratch_.path / layout.name;
    if (layout.mesh.pp == 1) deck.schedule.split = "even";
    return deck_on(deck, layout);
  }

  // Every whole tensor is what libhdf5 read when the checkpoint was written.
  void expect_same_tensors(const WholeState& whole) const {
    std::istringstream sums(read_text_file(folder_ + "tensors.sha256", 1 << 20, "list of hashes"));
    std::string hash, name;
    std::size_t compared = 0;
    for (; sums >> hash >> name; ++compared) {
      ASSERT_TRUE(whole.contains(name)) << name;
      EXPECT_EQ(hex_of(sha256(whole.at(name))), hash) << name;
    }
    EXPECT_EQ(compared, old_.tensors);
    EXPECT_EQ(whole.size(), old_.tensors);
  }

  // The run goes on as the one that wrote the checkpoint did.
  template <class T>
  void expect_same_run(const Layout& layout, const WholeState& whole, const ReferenceSeries& then, double bound) const {
    const Deck deck = deck_of(layout);
    std::vector<StepRecord> records;
    run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
      Rank<T> rank(world, deck);
      spoil(*rank.session);
      std::vector<std::string> notes;
      const RunProgress progress = rank.restart_from(path_, notes);
      if (progress.step != saved_step || progress.updates != saved_step) throw Error("another step");
      if (const auto wrong = difference(*rank.session, whole); !wrong.empty()) throw Error(wrong);
      auto steps = rank.train(progress);
      if (world.rank() == 0) records = std::move(steps);
    });
    ASSERT_EQ(records.size(), static_cast<std::size_t>(last_step - saved_step)) << layout.name;
    for (const StepRecord& record : records) {
      const auto s = static_cast<std::size_t>(record.step - 1);
      EXPECT_NEAR(record.loss, then.loss[s], bound * then.loss[s]) << layout.name << ", step " << record.step;
      EXPECT_NEAR(record.total_loss, then.total_loss[s], bound * then.total_loss[s]) << layout.name;
      EXPECT_NEAR(record.grad_norm, then.grad_norm[s], 10 * bound * then.grad_norm[s]) << layout.name;
      EXPECT_NEAR(record.learning_rate, then.learning_rate[s], 1e-12) << layout.name;
    }
  }

  const Scratch scratch_;
  const Old old_ = old_checkpoints()[GetParam()];
  const std::string folder_ = old_folder + old_.name + "/", path_ = folder_ + step_name(saved_step);
};

// In fp64 to rounding, as between layouts of this version; in fp32 to 100 eps, of what three steps of rounding leave:
// ten leave up to 50 in `forge verify`'s problems.
TEST_P(OldCheckpoints, Restart) {
  EXPECT_TRUE(verify_checkpoint(path_, 1).empty());
  EXPECT_EQ(CheckpointFiles(path_).facts().step, saved_step);
  const WholeState whole = whole_state(path_);
  expect_same_tensors(whole);
  auto references = read_reference(folder_ + "reference.yaml");
  ASSERT_EQ(references.size(), 1u);
  const auto& [precision, then] = *references.begin();
  ASSERT_EQ(then.loss.size(), static_cast<std::size_t>(last_step));
  ASSERT_EQ(old_.layouts.size(), 3u);
  for (const Layout& layout : old_.layouts)
    if (precision == "fp64")
      expect_same_run<double>(layout, whole, then, 1e-12);
    else
      expect_same_run<float>(layout, whole, then, 100 * 0x1p-24);
}

INSTANTIATE_TEST_SUITE_P(Folders, OldCheckpoints, testing::Range(std::size_t{0}, old_checkpoints().size()),
                         [](const auto& info) { return std::string(old_checkpoints()[info.param].name); });

// Every folder is tested.
TEST(OldFolders, AreAllTested) {
  std::size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(old_folder)) folders += entry.is_directory();
  EXPECT_EQ(folders, old_checkpoints().size());
}

}  // namespace
}  // namespace forge::test
