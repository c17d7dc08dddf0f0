#include "model/buffers.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "nn/block.plan.hpp"
#include "recompute_lists.hpp"

namespace forge {
namespace {

using Part = BufferLister::Part;

struct Three {
  View<float, 2> a;
  View<std::int32_t, 1> b;
  View<double, 2> c;

  void list(BufferLister& l) {
    l.save(a, "a", 3, 5, l.B);
    l.recompute(b, Recompute::norms, "b", 7, 1, l.W);
    l.keep(c, "c", 2, 2, l.W);
  }
};

BufferContext context_of(Recompute recompute) {
  BufferContext c;
  c.recompute = recompute;
  return c;
}

// Members follow each other in the list's order, each with its type and shape, at a multiple of the arena's alignment.
TEST(Buffers, MembersArePlacedOneBehindTheOther) {
  const BufferContext context = context_of(Recompute::none);
  Three members;
  BufferLister lister(context);
  members.list(lister);
  ASSERT_EQ(lister.list.size(), 3u);
  EXPECT_EQ(lister.list[0].bytes(), 3 * 5 * sizeof(float));
  std::vector<std::byte> memory(aligned_bytes(lister.list));
  place(lister.list, memory.data());
  EXPECT_EQ(static_cast<void*>(members.a.data), memory.data());
  EXPECT_EQ(static_cast<void*>(members.b.data), memory.data() + align_up(60));
  EXPECT_EQ(static_cast<void*>(members.c.data), memory.data() + align_up(60) + align_up(28));
  EXPECT_EQ(memory.size(), align_up(60) + align_up(28) + align_up(32));
  EXPECT_EQ(members.a.rows(), 3);
  EXPECT_EQ(members.a.columns(), 5);
  EXPECT_EQ(members.b.size(), 7);
  EXPECT_THROW(place(lister.list, nullptr), Error);
}

TEST(Buffers, ThePolicySaysWhatIsSaved) {
  const auto names = [](Recompute recompute, Part part) {
    const BufferContext context = context_of(recompute);
    Three members;
    BufferLister lister(context, part);
    members.list(lister);
    std::string text;
    for (const BufferSpec& buffer : lister.list) text += buffer.name;
    return text;
  };
  EXPECT_EQ(names(Recompute::none, Part::saved), "abc");
  EXPECT_EQ(names(Recompute::selective, Part::saved), "ac");
  EXPECT_EQ(names({Recompute::norms}, Part::saved), "ac");
  EXPECT_EQ(names({Recompute::activations | Recompute::up_projections}, Part::saved), "abc");
  EXPECT_EQ(names(Recompute::full, Part::saved), "c");
  EXPECT_EQ(names(Recompute::none, Part::recomputed), "");
  EXPECT_EQ(names(Recompute::selective, Part::recomputed), "b");
  EXPECT_EQ(names(Recompute::full, Part::recomputed), "ab");
}

TEST(Buffers, LatentDropsHeadsAndSelectiveKeepsThem) {
  for (const auto& [policy, saved] :
       {std::pair{Recompute::none, 1u}, {Recompute::selective, 1u}, {Recompute::latent, 0u}, {Recompute::full, 0u}})
    for (const Part part : {Part::saved, Part::recomputed}) {
      const BufferContext context = context_of(policy);
      View<float, 2> q;
      BufferLister lister(context, part);
      lister.recompute(q, Recompute::up_projections, "q", 3, 5, lister.B);
      EXPECT_EQ(lister.list.size(), part == Part::saved ? saved : 1 - saved) << policy.parts;
    }
}

ModelDeck dense() {
  ModelDeck m;
  m.layers = 1;
  m.width = 32;
  m.heads = 4;
  m.ffn = 48;
  m.vocabulary = 100;
  return m;
}
ModelDeck with_latents(ModelDeck m) {
  m.attention = AttentionKind::mla;
  m.q_lora = 8;
  m.kv_lora = 12;
  m.nope_dim = m.value_dim = 8;
  m.rope_dim = 4;
  return m;
}
ModelDeck with_experts(ModelDeck m) {
  m.experts = 4;
  m.experts_per_token = 2;
  m.expert_ffn = 24;
  m.shared_expert_ffn = 8;
  return m;
}

// A name drops its own members and no others.
TEST(Buffers, ANameDropsItsPart) {
  const auto dropped = [&](Recompute::Part part) {
    BufferContext context = context_of({part});
    context.spec = resolve_model(with_experts(with_latents(dense())));
    context.microbatch = {2, 16};
    BlockBuffers<bf16> block;
    BufferLister lister(context, Part::recomputed);
    block.list(lister, 0);
    std::string text;
    for (const BufferSpec& buffer : lister.list) text += (text.empty() ? "" : "; ") + std::string(buffer.name);
    return text;
  };
  EXPECT_EQ(dropped(Recompute::norms), "norm 1 output; inputs of the up-projections; norm 2 output");
  EXPECT_EQ(dropped(Recompute::activations), "shared activation");
  EXPECT_EQ(dropped(Recompute::expert_activations), "experts' activation");
  EXPECT_EQ(dropped(Recompute::up_projections), "q; k; v");
}

// A block's saved members and its recomputed ones together are all of its members, each once.
TEST(Buffers, NothingOfABlockIsSavedAndRecomputed) {
  for (const ModelDeck& deck : {dense(), with_latents(dense()), with_experts(dense())})
    for (const Recompute recompute : test::every_recompute(deck)) {
      BufferContext context = context_of(recompute);
      context.spec = resolve_model(deck);
      context.microbatch = {2, 16};
      BlockBuffers<bf16> block;
      std::multiset<void*> members[3];
      for (const Part part : {Part::all, Part::saved, Part::recomputed}) {
        BufferLister lister(context, part);
        block.list(lister, 0);
        for (const BufferSpec& buffer : lister.list) members[static_cast<int>(part)].insert(buffer.member);
      }
      members[1].merge(members[2]);
      EXPECT_GT(members[0].size(), 8u);
      EXPECT_EQ(members[0], members[1]);
      EXPECT_EQ(std::set<void*>(members[0].begin(), members[0].end()).size(), members[0].size());
    }
}

}  // namespace
}  // namespace forge
