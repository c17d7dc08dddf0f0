#include "config/recompute.hpp"

#include <algorithm>

#include "config/check_parts.hpp"
#include "config/key_builder.hpp"
#include "config/keys.hpp"
#include "config/text.hpp"

namespace forge {

namespace {

const SetKey& key() {
  return std::get<SetKey>(find_key("train", "recompute")->kind);
}

bool has_word(Recompute policy) {
  return std::any_of(recompute_words.begin(), recompute_words.end(),
                     [&](const RecomputeWord& word) { return word.policy == policy; });
}

}  // namespace

void add_recompute_keys(SectionKeys<&Deck::train>& k) {
  SetKey recompute{{}, {}, {recompute_parts.begin(), recompute_parts.end()}};
  for (const RecomputeWord& word : recompute_words) recompute.words.emplace_back(word.word, word.policy.parts);
  k.set<&TrainDeck::recompute>(
      "recompute", OnRestart::may_change, std::move(recompute),
      "recomputed by backward instead of saved: nothing; outputs of norms and activations; with mla also q, k and v, "
      "from their latents; whole blocks; the parts of a list");
  k.integer<&TrainDeck::recompute_full_layers>(
      "recompute_full_layers", OnRestart::may_change, 0, 1 << 20, "",
      "blocks at the start of each stage that are recomputed whole, where the others are as `recompute` says");
}

std::string name_of(Recompute policy) {
  return set_text(key(), policy.parts);
}

std::vector<Recompute> recompute_policies(const ModelDeck& model) {
  if (model.attention == AttentionKind::mla)
    return {Recompute::none, Recompute::selective, Recompute::latent, Recompute::full};
  return {Recompute::none, Recompute::selective, Recompute::full};
}

Recompute parts_of(const ModelDeck& m) {
  const bool latent = m.attention == AttentionKind::mla;
  const bool dense = m.experts == 0 || m.shared_expert_ffn > 0 || m.first_dense_layers > 0 || m.moe_every > 1 ||
                     !m.dense_layers.empty();
  Recompute all;
  if (latent || m.mtp_depth > 0 || m.norm_placement != NormPlacement::behind) all.parts |= Recompute::norms;
  if (dense) all.parts |= Recompute::activations;
  if (m.experts > 0) all.parts |= Recompute::expert_activations;
  if (latent) all.parts |= Recompute::up_projections;
  return all;
}

std::string recompute_text(const TrainDeck& train) {
  const std::string others = name_of(train.recompute);
  return train.recompute_full_layers == 0
             ? others
             : others + ", " + std::to_string(train.recompute_full_layers) + " of a stage full";
}

void check_recompute(const Deck& deck, Report& report) {
  const Recompute policy = deck.train.recompute, all = parts_of(deck.model);
  const std::string equals = "train.recompute = " + name_of(policy);
  std::string legal;
  for (const Recompute word : recompute_policies(deck.model)) legal += name_of(word) + " | ";
  if (policy == Recompute::latent && !all.has(Recompute::up_projections))
    report.add(equals +
               " without model.attention = mla, which has latents; legal: " + legal.substr(0, legal.size() - 3));
  else if (const Recompute missing{policy.parts & ~all.parts}; !has_word(policy) && missing != Recompute::none)
    report.add(equals + ": the model has no " + name_of(missing) + "; legal: " + legal + "list of " +
               joined(set_names(key(), all.parts)));
  if (policy == Recompute::full && deck.train.recompute_full_layers > 0)
    report.add(equation("train.recompute_full_layers", deck.train.recompute_full_layers) + " with " + equals +
               ", which recomputes all blocks; legal: 0, or a train.recompute for the others");
}

}  // namespace forge
