#include "config/key_builder.hpp"

namespace forge {

namespace {

using enum OnRestart;

// A part of the model: runs and their files have them.
constexpr auto of_adapter = [](auto& deck) -> auto& {
  return deck.model.adapter;
};

void add_adapter(std::vector<Key>& keys) {
  using A = AdapterDeck;
  SectionKeys<of_adapter> k("adapter", keys);
  k.choice<&A::name>("name", stays, {"none", "lora"},
                     "lora: beside a matrix W of the frozen model stand A (rank, in) and B (out, rank): W x + scale B "
                     "A x (arXiv 2106.09685)");
  k.integer<&A::rank>("rank", stays, 1, 1 << 16, "", "rows of A, columns of B");
  k.number<&A::alpha>("alpha", stays, more_than(0), "scale = alpha / rank");
  k.flag<&A::rank_stabilised>("rank_stabilised", stays, "scale = alpha / sqrt(rank) (arXiv 2312.03732)");
  k.number<&A::dropout>("dropout", stays, from_below(0, 1),
                        "of A's input, in training: one draw for the matrices that read it; not of experts'");
  k.texts<&A::targets>("targets", stays,
                       "matrices that have one, by the last part of Hugging Face's names (q_proj); [] = all of "
                       "attention and MLP");
  k.path<&A::load>("load", may_change,
                   "directory with adapter_config.json and adapter_model.safetensors, of PEFT or of `forge export`; "
                   "empty = A drawn, B zero");
}

void add_preference(std::vector<Key>& keys) {
  using P = PreferenceDeck;
  SectionKeys<&Deck::preference> k("preference", keys);
  k.choice<&P::name>("name", stays, {"none", "dpo"},
                     "dpo: direct preference optimization (arXiv 2305.18290), on samples of data.packing = pairs "
                     "(docs/finetuning.md)");
  k.number<&P::beta>("beta", stays, more_than(0), "of the reward beta (log p - log p of the reference)");
  k.number<&P::label_smoothing>("label_smoothing", stays, from_below(0, 0.5),
                                "probability that the other text of a pair is the better one");
  k.path<&P::reference>("reference", may_change,
                        "file of the reference's log-probabilities, which the start makes with its weights where there "
                        "is none; empty = <output.directory>/reference.logp");
}

}  // namespace

void add_tuning_keys(std::vector<Key>& keys) {
  add_adapter(keys);
  add_preference(keys);
}

}  // namespace forge
