#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"
#include "config/report.hpp"

namespace forge {

// Parts of check_values, and the phrases that all checks of a deck share.

// The model section, dimensions known: derives kv_heads and head_dim. sequence_tokens 0 = not known.
void check_model(ModelDeck& model, std::int64_t sequence_tokens, Report& report);

// Epsilons that are as good as 0 in the type that computes: they are added to values that may be 0, too. The
// optimizer's where the deck trains.
void check_epsilons(const Deck& deck, bool trains, Report& report);

// Multi-head latent attention: derives value_dim, head_dim and kv_heads. Experts: derives expert_ffn and
// router_groups_used. Keys that have no effect are refused.
void check_latent_attention(ModelDeck& model, Report& report);
void check_experts(ModelDeck& model, Report& report);

// train.recompute names parts that the model has.
void check_recompute(const Deck& deck, Report& report);

// Gated DeltaNet: its keys, and those that exclude it.
void check_linear(const Deck& deck, Report& report);

// The keys of spikes, which rule nothing without train.spike.
void check_spikes(const Deck& deck, Report& report);
void check_replicas(const Deck& deck, Report& report);
// train.frozen and the adapter section: keys that exclude them are refused. `trains`: the deck is to be trained.
void check_frozen(const Deck& deck, Report& report);
void check_adapter(const Deck& deck, bool trains, Report& report);
// The preference section, and the keys that samples of pairs exclude.
void check_preference(const Deck& deck, Report& report);
// Matrices that may have an adapter, by the last parts of Hugging Face's names.
std::vector<std::string> adapter_targets(const ModelDeck& model);
// "" or why PEFT can't read the adapters: experts' gates and ups stand in one tensor there.
std::string peft_obstacle(const ModelDeck& model);

// The data section.
void check_data(const Deck& deck, Report& report);

std::string activation_word(const ModelDeck& model);  // as the deck has it

// Keys of the model section that have no effect `without` another one, parted by spaces: each must have its default.
void check_unused(const ModelDeck& model, std::string_view names, const char* without, Report& report);

// "model.heads = 6"
inline std::string equation(const char* key, std::int64_t value) {
  return std::string(key) + " = " + std::to_string(value);
}
// An entry of a list begins with a later step than the one before it, whose step becomes the entry's.
void check_order(const std::string& where, std::int64_t first, std::int64_t& before, Report& report);
// "6 or 9": the multiples of `unit` around a value that is none; the smaller one only where it is positive.
std::string nearest_multiples(std::int64_t value, std::int64_t unit);
// "3 or 6": the divisors of `whole` around a value that is none.
std::string nearest_divisors(std::int64_t value, std::int64_t whole);

}  // namespace forge
