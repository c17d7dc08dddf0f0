#include <gtest/gtest.h>

#include <cstdio>

#include "../long_run.hpp"
#include "checkpoint/save.hpp"
#include "comm/thread_communicator.hpp"
#include "core/to_size.hpp"
#include "nn/units.plan.hpp"
#include "restarts.hpp"

namespace forge::test {
namespace {

// Matrices of a size that models have; the biases and norms beside them are of no account.
Deck wide(Deck deck) {
  deck.model.layers = 3;
  deck.model.width = 512;
  deck.model.heads = 8;
  deck.model.kv_heads = 2;
  deck.model.head_dim = 64;
  deck.model.ffn = 1408;
  deck.model.vocabulary = 1009;
  if (deck.model.experts > 0) deck.model.expert_ffn = 256;
  deck.train.global_batch_sequences = 12;
  deck.train.precision = PrecisionName::fp32;
  return deck;
}

struct Case {
  const char* name;
  Deck model;
  std::vector<Layout> layouts;
};

std::vector<Case> cases() {
  const Layout one{"one rank", {1, 1, 1, 1, 1}}, stages{"pp 3", {3, 1, 1, 1, 1}};
  return {{"dense",
           wide(test_models()[0].deck),
           {one,
            stages,
            {"tp 2", {1, 1, 1, 1, 2}},
            {"tp 8", {1, 1, 1, 1, 8}},
            {"zero 3 of 3", {1, 1, 3, 1, 1}, 3},
            {"zero 3 of 4", {1, 1, 4, 1, 1}, 3},
            {"zero 1 of 6", {1, 1, 6, 1, 1}, 1},
            {"tp 4, zero 3 of 2", {1, 1, 2, 1, 4}, 3},
            {"pp, replicas, tp", {2, 2, 1, 1, 2}},
            {"pp, tp, zero 2 of 2", {2, 1, 2, 1, 2}, 2},
            {"replicas, cp, zero 3", {1, 2, 2, 2, 1}, 3}}},
          {"moe",
           wide(moe_models()[0].deck),
           {one,
            stages,
            {"ep 2", {1, 1, 2, 1, 1, 2, 1}},
            {"ep 6, zero 3", {1, 1, 6, 1, 1, 6, 1}, 3},
            {"ep 3 of 6, zero 3", {1, 1, 6, 1, 1, 3, 1}, 3},
            {"ep 2 of 4, zero 1", {1, 1, 4, 1, 1, 2, 1}, 1},
            {"etp 4", {1, 1, 1, 1, 4, 1, 4}},
            {"ep 2, etp 2 folded", {1, 1, 1, 1, 4, 2, 2}},
            {"replicas, ep 2, tp 2", {1, 2, 2, 1, 2, 2, 2}},
            {"pp, tp, ep 2, zero 3", {2, 1, 2, 1, 2, 2, 1}, 3}}}};
}

class BytesRead : public testing::TestWithParam<std::size_t> {};

// Loading on another layout reads at most 1.1 times what its ranks hold together. Every second or fourth pair, in a
// long run all.
TEST_P(BytesRead, AreHardlyMoreThanNeeded) {
  const Case c = cases()[GetParam()];
  constexpr StateParts parts{true, false};  // moments are cut like the parameters
  const Scratch scratch;
  const std::size_t stride = stride_of(2), all = c.layouts.size();
  double worst = 0, sum = 0;
  std::int64_t pairs = 0;
  for (std::size_t w = 0; w < c.layouts.size(); ++w) {
    const Layout& writer = c.layouts[w];
    run_ranks(static_cast<int>(ranks_of(writer.mesh)), [&](Communicator& world) {
      Rank<float> rank(world, deck_on(c.model, writer));
      rank.session->initialise();
      rank.session->stream().synchronize();
      CheckpointSaver(world, {scratch.path}, false)
          .save(sample_facts(1), session_state(*rank.session, StateUse::write, parts), rank.session->stream());
    });
    for (std::size_t r = w % stride; r < c.layouts.size(); r += stride) {
      const Layout& reader = c.layouts[r];
      std::array<std::int64_t, 2> bytes{};
      run_ranks(static_cast<int>(ranks_of(reader.mesh)), [&](Communicator& world) {
        Rank<float> rank(world, deck_on(c.model, reader));
        const auto wanted = session_state(*rank.session, StateUse::read, parts);
        CheckpointFiles files(scratch.path / step_name(1), datasets_of(wanted));
        files.read(wanted, rank.session->stream());
        std::array<std::int64_t, 2> of_rank{static_cast<std::int64_t>(files.bytes_read()),
                                            static_cast<std::int64_t>(files.bytes_needed())};
        world.sum_host(of_rank);
        if (world.rank() == 0) bytes = of_rank;
      });
      EXPECT_GE(bytes[1], parameter_count(parameter_units(resolve_model(c.model.model))) * 4);
      const double ratio = static_cast<double>(bytes[0]) / static_cast<double>(bytes[1]);
      EXPECT_GE(ratio, 1) << writer.name << " to " << reader.name;
      EXPECT_LE(ratio, 1.1) << writer.name << " to " << reader.name;
      worst = std::max(worst, ratio);
      sum += ratio;
      ++pairs;
    }
  }
  EXPECT_EQ(all, c.model.model.experts > 0 ? 10u : 11u);
  std::size_t expected = 0;
  for (std::size_t k = 0; k < stride; ++k) expected += part_of(all - k, 2) * part_of(all - k, 2);
  EXPECT_EQ(to_size(pairs), expected);
  std::printf("%lld pairs: bytes read / needed %.3f in the mean, %.3f at most\n", static_cast<long long>(pairs),
              sum / static_cast<double>(pairs), worst);
}

INSTANTIATE_TEST_SUITE_P(Models, BytesRead, testing::Range(std::size_t{0}, cases().size()),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

}  // namespace
}  // namespace forge::test
