#include "schedule/repetition.hpp"

#include <gtest/gtest.h>

#include "config/read.hpp"
#include "config/schedule_name.hpp"
#include "plan/memory.hpp"
#include "plan/rank_memory.hpp"
#include "plan/setup.hpp"
#include "plan/traffic.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"

namespace forge::test {
namespace {

// With 32 layers, on pp stages of two data-parallel ranks, with microbatches of one sequence.
Deck deck_of(const std::vector<std::string>& settings, const std::string& schedule, int chunks, int pp,
             std::int64_t microbatches) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  const std::string text =
      "model: {layers: 32, width: 64, heads: 4, kv_heads: 2, ffn: 96, vocabulary: 211}\nmesh: {pp: " + number(pp) +
      ", dp_shard: 2}\nschedule: {name: " + schedule + ", virtual_stages: " + number(chunks) +
      "}\ntrain: {steps: 9, sequence_tokens: 32, global_batch_sequences: " + number(2 * microbatches) +
      "}\noptimizer: {learning_rate: 1e-3}\ndata: {files: [a.bin]}\noutput: {directory: a}\n";
  Deck deck = read_deck(text, "deck", settings);
  check_deck(deck, static_cast<int>(ranks_of(deck.mesh)));
  return deck;
}

// Holds what few microbatches say of each stage's memory and traffic to the whole schedule.
void compare_with_whole(const Deck& deck) {
  const RunSetup setup = make_setup(deck);
  const Repetition repeated = repetition_of(deck, setup.microbatches);
  ASSERT_GT(repeated.times, 0);
  ASSERT_EQ(repeated.few + repeated.times * repeated.period, setup.microbatches);
  const Schedule few = few_of(deck, setup.schedule), more = lowered_schedule(deck, repeated.few + repeated.period);
  ASSERT_EQ(few.microbatches, repeated.few);
  for (int p = 0; p < setup.mesh.pp; ++p) {
    const RankShare share = rank_share(setup.model_share(), p * (setup.mesh.world() / setup.mesh.pp));
    const auto memory = [&](const Schedule& s) {
      return plan_memory(setup.buffers, share, s, library_bytes(deck), RunKind::training);
    };
    const MemoryPlan whole_memory = memory(setup.schedule), few_memory = memory(few);
    EXPECT_EQ(whole_memory.bytes, few_memory.bytes) << "stage " << p;
    EXPECT_EQ(whole_memory.peak, few_memory.peak) << "stage " << p;
    const auto traffic = [&](const Schedule& s) {
      return plan_traffic(setup.buffers, setup.spec, setup.mesh, share, s);
    };
    const auto whole_sent = traffic(setup.schedule), few_sent = traffic(few), more_sent = traffic(more);
    for (std::size_t g = 0; g < whole_sent.size(); ++g)
      for (std::size_t c = 0; c < to_size(collective_count); ++c) {
        const Traffic &whole = whole_sent[g].second, &once = few_sent[g].second, &again = more_sent[g].second;
        EXPECT_EQ(whole.bytes[c], once.bytes[c] + repeated.times * (again.bytes[c] - once.bytes[c]))
            << "stage " << p << ", " << whole_sent[g].first;
        EXPECT_EQ(whole.calls[c], once.calls[c] + repeated.times * (again.calls[c] - once.calls[c]));
      }
  }
}

// What decides about the tasks of a rank: what is gathered and reduced when, what is kept, and the layers.
const std::vector<std::vector<std::string>> variants = {
    {"train.zero_stage=0"},
    {"train.zero_stage=1"},
    {"train.zero_stage=1", "train.accumulate=sharded", "train.recompute=full"},
    {"train.zero_stage=2", "optimizer.gradients=bf16", "train.precision=bf16"},
    {"train.zero_stage=3"},
    {"train.zero_stage=3", "train.gather=step", "train.recompute=selective"},
    {"train.zero_stage=3", "mesh.tp=2", "model.tied_embeddings=true"},
    {"train.zero_stage=3", "model.experts=4", "model.experts_per_token=2", "model.expert_ffn=32", "mesh.ep=2"},
    {"train.zero_stage=1", "model.experts=4", "model.experts_per_token=2", "model.expert_ffn=32",
     "model.first_dense_layers=3", "mesh.cp=2", "train.sequence_tokens=64"},
    {"train.zero_stage=3", "model.mtp_depth=1", "train.recompute=full"},
    {"optimizer.name=muon", "train.zero_stage=2"},
};

struct Form {
  const char* schedule;
  int chunks;
};

void compare_forms(const std::vector<std::vector<std::string>>& variants) {
  for (const Form& form : {Form{"1f1b", 1}, {"interleaved", 2}, {"interleaved", 4}, {"zero_bubble", 1}, {"zb_v", 2}})
    for (const int pp : {1, 2, 3, 4, 7, 8})
      for (std::size_t v = 0; v < variants.size(); ++v) {
        if (pp == 1 && std::string(form.schedule) != "1f1b") continue;
        const std::int64_t period = form.chunks > 1 && std::string(form.schedule) == "interleaved" ? pp : 1;
        const std::int64_t microbatches = (3 * pp / period + 7) * period + static_cast<std::int64_t>(v) * period;
        SCOPED_TRACE(std::string(form.schedule) + " x " + std::to_string(form.chunks) + ", pp " + std::to_string(pp) +
                     ", variant " + std::to_string(v) + ", " + std::to_string(microbatches) + " microbatches");
        compare_with_whole(deck_of(variants[v], form.schedule, form.chunks, pp, microbatches));
      }
}

TEST(Repetition, MemoryAndTrafficOfFewMicrobatchesAreTheWhole) {
  compare_forms(variants);
}

// Every second variant: without a head of its own a table can't have pairs everywhere.
TEST(Repetition, InPairsToo) {
  std::vector<std::vector<std::string>> some;
  for (std::size_t v = 0; v < variants.size(); v += 2) {
    some.push_back(variants[v]);
    some.back().insert(some.back().end(), {"train.overlap=pairs", "model.tied_embeddings=false"});
  }
  compare_forms(some);
}

// A remainder of an interleaved schedule's groups stays; what holds all microbatches, or has as few, is whole.
TEST(Repetition, NumbersOfMicrobatches) {
  const Deck interleaved = deck_of({}, "interleaved", 2, 4, 64);
  EXPECT_EQ(repetition_of(interleaved, 64).few % 4, 0);
  EXPECT_EQ(repetition_of(deck_of({}, "gpipe", 1, 4, 64), 64).times, 0);
  const Deck plain = deck_of({}, "1f1b", 1, 4, 64);
  EXPECT_EQ(repetition_of(plain, 64).few, 16);
  EXPECT_EQ(repetition_of(plain, 17).times, 0);
  EXPECT_EQ(repetition_of(plain, 18).times, 2);
  const Schedule few = few_of(plain, lowered_schedule(plain, 16));
  EXPECT_EQ(few.microbatches, 16);
}

}  // namespace
}  // namespace forge::test
