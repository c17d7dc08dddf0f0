#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/kernel_choice.hpp"
#include "config/schedule_name.hpp"

namespace forge::test {

// Every way to write n as pp x dp_replicate x dp_shard x cp x tp.
std::vector<MeshDeck> meshes_of(int ranks);

// A layout's choices beside the mesh.
struct Choice {
  std::int64_t zero_stage = 0;
  Accumulation accumulate = Accumulation::automatic;
  GatherPolicy gather = GatherPolicy::microbatch;
  Recompute recompute = Recompute::none;
  ScheduleName schedule = ScheduleName::one_f_one_b;
  std::int64_t chunks = 1;
};
// The ZeRO stages, each with its legal ways of accumulation and gathering; nothing else is set.
std::vector<Choice> zero_choices();
// none, selective, full, none, …; layout_deck() takes latent or a list for some with selective.
Recompute recompute_of(std::size_t number);
// All of them with every recompute policy and schedule.
std::vector<Choice> choices_of(const MeshDeck& mesh);

// The deck of a model on a mesh with a choice; `number` varies the rest (method of cp, split, microbatch).
// Heads among 2 or cp / 2 ranks, keys in a ring over the others, where cp is even and above 2.
void set_two_levels(MeshDeck& mesh, std::size_t number);
Deck layout_deck(Deck deck, const MeshDeck& mesh, const Choice& choice, std::size_t number);
// Changes heads, ffn, sequence length and batch where the mesh, the method of cp or the schedule cannot have them, and
// nothing else: with 8 heads, 2 of keys, 16 tokens and 16 sequences, tp 3, cp 3 or dp 5 have no legal layout.
void fit_model(Deck& deck);
// "Ett||tm|m|L": the layers of a model, and those of multi-token prediction behind them, on the deck's stages, drawn by
// `key`; some stages may be empty.
std::string split_string(const Deck& deck, std::uint64_t key);

// A layout and the model it is of, for messages.
struct LayoutCase {
  std::string name;
  Deck deck;
  KernelChoice kernels = asked_kernels();
};
// Every legal ep and etp of a mesh.
std::vector<MeshDeck> expert_meshes(const Deck& deck, const MeshDeck& mesh);
// Layouts of models with experts: every mesh of 1 … `most` ranks with every ep and etp, with so many draws of the rest
// each; those whose number is `part` modulo `parts`.
std::vector<LayoutCase> moe_layouts(int most, int draws, int parts, int part);
// All meshes of so many ranks; ep, etp and the rest are drawn.
std::vector<LayoutCase> drawn_moe_layouts(int ranks, std::uint64_t key);

// Completes the deck for its number of ranks; "" or the rule that forbids it.
std::string illegality(Deck& deck);

// All layouts of 1 … `most` ranks, models and layout_deck()'s numbers taking turns; those whose number is `part`
// modulo `parts`. Not `every`: of each mesh and ZeRO choice only one, with a drawn recompute policy and schedule.
std::vector<LayoutCase> all_layouts(int most, bool every, int parts, int part);

}  // namespace forge::test
