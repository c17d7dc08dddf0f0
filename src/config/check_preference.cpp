#include "config/check_parts.hpp"
#include "config/fp8_recipe.hpp"
#include "config/keys.hpp"

namespace forge {

namespace {

void refuse_without_dpo(const Deck& deck, Report& report) {
  for (const Key& key : all_keys())
    if (key.section == "preference" && !is_default(key, deck))
      report.add(key.qualified() + " = " + value_text(key, deck) +
                 " without preference.name = dpo; legal: " + default_text(key) + ", or name: dpo");
  if (deck.data.packing == Packing::pairs)
    report.add("data.packing = pairs without preference.name = dpo; legal: cut | best_fit, or name: dpo");
}

}  // namespace

void check_preference(const Deck& deck, Report& report) {
  if (!deck.preference.on()) return refuse_without_dpo(deck, report);
  const DataDeck& d = deck.data;
  const auto refuse = [&](bool wrong, const char* section, const char* name, const std::string& why,
                          const std::string& legal) {
    if (!wrong) return;
    const Key& key = *find_key(section, name);
    report.add("preference.name = dpo with " + key.qualified() + " = " + value_text(key, deck) + ", " + why +
               "; legal: " + legal + ", or preference.name: none");
  };
  refuse(d.packing != Packing::pairs, "data", "packing", "whose samples are no pairs", "pairs");
  refuse(d.positions != PositionOrigin::document, "data", "positions",
         "by which a pair's second text begins behind the first one", "document");
  refuse(!d.sources.empty(), "data", "sources", "whose losses are means over labels", "no sources (data.files)");
  refuse(!d.phases.empty(), "data", "phases", "of sources and pieces of samples, which pairs aren't", "no phases");
  refuse(deck.model.mtp_depth > 0, "model", "mtp_depth", "whose losses are no part of a pair's", "0");
  refuse(deck.train.z_loss_coefficient > 0, "train", "z_loss_coefficient", "a loss of labels", "0");
  refuse(deck.train.precision == PrecisionName::fp8 && properties_of(deck.train.fp8_recipe).has_history(), "train",
         "fp8_recipe", "which has no scales before step 1, when the reference is asked", "another recipe");
}

}  // namespace forge
