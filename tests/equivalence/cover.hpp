#pragma once

#include <vector>

#include "enumerate.hpp"

namespace forge::test {

// A set of layouts of 9 … 64 ranks in which every two values of the factors below occur together, where any layout has
// both: extents of the axes, ZeRO with its accumulation and gathering, recompute, schedule with its chunks, method of
// cp, split, microbatch, model. Greedy: of a fixed pool of candidates, whichever has the most new pairs.
std::vector<LayoutCase> covering_layouts();

// All meshes of so many ranks; choices, models and the parts that layout_deck() varies are drawn.
std::vector<LayoutCase> drawn_layouts(int ranks, std::uint64_t key);

// Layouts of models with multi-token prediction: of all meshes of so many ranks every `stride`-th, each with `draws`
// draws of model, ep, etp and choices.
std::vector<LayoutCase> drawn_mtp_layouts(int ranks, int draws, std::size_t stride = 1);

// The same deck with a number of training steps, and with validation between and after them on 13 sequences, so that
// the last ranks' shares end with padding.
Deck with_training(Deck deck, std::int64_t steps);

// A model of drawn dimensions (layers, heads, key heads, head size, ffn, vocabulary, options), sequence length and
// batch on a drawn layout of at most 8 ranks.
LayoutCase drawn_model(std::uint64_t key);

}  // namespace forge::test
