#include <algorithm>

#include "config/check_parts.hpp"
#include "config/keys.hpp"
#include "config/mixture_keys.hpp"
#include "config/optimizer_table.hpp"
#include "config/text.hpp"

namespace forge {

namespace {

std::string chosen(const char* name, const Deck& deck) {
  return std::string("data.") + name + " = " + value_text(*find_key("data", name), deck);
}

// A key that rules what isn't there would be ignored.
void refuse_without(const Deck& deck, const char* name, bool has, const char* what, const char* instead,
                    Report& report) {
  if (has || is_default(*find_key("data", name), deck)) return;
  report.add(chosen(name, deck) + " without " + what + "; legal: " + default_text(*find_key("data", name)) +
             ", or give " + instead);
}

void check_masks(const char* key, const std::vector<std::string>& masks, const char* files_key,
                 const std::vector<std::string>& files, Report& report) {
  if (!masks.empty() && masks.size() != files.size())
    report.add(std::string(key) + " has " + std::to_string(masks.size()) +
               " paths; legal: " + std::to_string(files.size()) + ", one for each of " + files_key + ", or none");
}

void check_mixture(const Deck& deck, Report& report) {
  const DataDeck& d = deck.data;
  if (!d.sources.empty() && !d.files.empty())
    report.add("data.files and data.sources are both given; legal: one of them");
  refuse_without(deck, "temperature", !d.sources.empty(), "data.sources", "the sources", report);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < d.phases.size(); ++i) {
    const PhaseDeck& phase = d.phases[i];
    const std::string where = "data.phases[" + std::to_string(i) + "]";
    for (const auto& weight : phase.weights)
      if (std::none_of(d.sources.begin(), d.sources.end(), [&](const SourceDeck& s) { return s.name == weight.first; }))
        report.add(where + ".weights names " + shown(weight.first) + ", which is no source");
    if (const std::int64_t n = phase.sequence_tokens, T = deck.train.sequence_tokens; n > 0 && T % n != 0)
      report.add(where + ".sequence_tokens = " + std::to_string(n) + "; legal: a divisor of " +
                 equation("train.sequence_tokens", T));
    if (phase.sequence_tokens > 0 && d.packing != Packing::cut)
      report.add(where + ".sequence_tokens with " + chosen("packing", deck) +
                 ", whose samples are documents; legal: cut");
    if (phase.rate && row_of(deck.optimizer.name).averages)
      report.add(where + ".rate with optimizer.name = " + row_of(deck.optimizer.name).word +
                 ", whose averages want a rate that stays; legal: no rate");
    check_order(where, first_step_of(phase, deck.train), before, report);
  }
}

void check_documents(const Deck& deck, Report& report) {
  const DataDeck& d = deck.data;
  if (d.document_end_token >= deck.model.vocabulary)
    report.add(equation("data.document_end_token", d.document_end_token) + "; legal: less than " +
               equation("model.vocabulary", deck.model.vocabulary) + ", or -1");
  if (d.document_ends == DocumentEnds::index && d.document_end_token >= 0)
    report.add(equation("data.document_end_token", d.document_end_token) +
               " with data.document_ends = index, which says where documents end; legal: -1, or document_ends: token");
  const char* const documents = "data.document_end_token or data.document_ends = index";
  refuse_without(deck, "packing", d.has_documents(), "documents", documents, report);
  refuse_without(deck, "positions", d.has_documents(), "documents", documents, report);
  refuse_without(deck, "packing_directory", d.packing != Packing::cut, "data.packing = best_fit or pairs", "it",
                 report);
}

void check_tasks(const Deck& deck, Report& report) {
  const DataDeck& d = deck.data;
  if (!d.tasks.empty() && deck.train.validate_every_steps == 0)
    report.add(
        "data.tasks with train.validate_every_steps = 0, at whose steps they are scored; legal: at least 1, or no "
        "tasks");
  std::vector<std::string> names;
  for (const ValidationDeck& set : d.validation) names.push_back(set.name);
  for (const std::string& path : d.tasks) {
    const std::string name = DataDeck::task_name(path);
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end())
      report.add("data.tasks: " + path + " is called " + shown(name) +
                 ", as another task or set is; legal: files whose names without directory and ending differ");
    names.push_back(name);
  }
}

// longrope's frequencies follow from train.sequence_tokens here, and from a text's own length elsewhere: texts that are
// shorter than the samples that hold them would have others.
void check_short_texts(const Deck& deck, Report& report) {
  const DataDeck& d = deck.data;
  const std::int64_t T = deck.train.sequence_tokens, original = deck.model.rope_original_positions;
  if (deck.model.rope_scaling != RopeScaling::longrope || T <= original) return;
  const auto refuse = [&](bool wrong, const char* what, const char* instead) {
    if (wrong)
      report.add(std::string(what) + " with model.rope_scaling = longrope and " + equation("train.sequence_tokens", T) +
                 ", whose frequencies are not those of shorter texts; legal: at most " +
                 equation("model.rope_original_positions", original) + ", or " + instead);
  };
  refuse(!d.tasks.empty(), "data.tasks", "no tasks");
  refuse(d.packing == Packing::pairs, "data.packing = pairs", "another packing");
  refuse(d.positions == PositionOrigin::document && d.packing != Packing::pairs, "data.positions = document",
         "positions: sample");
  refuse(std::any_of(d.phases.begin(), d.phases.end(),
                     [&](const PhaseDeck& p) { return p.sequence_tokens > 0 && p.sequence_tokens <= original; }),
         "data.phases of shorter sequences", "phases of whole ones");
}

}  // namespace

void check_data(const Deck& deck, Report& report) {
  const DataDeck& d = deck.data;
  check_masks("data.mask_files", d.mask_files, "data.files", d.files, report);
  check_masks("data.validation_mask_files", d.validation_mask_files, "data.validation_files", d.validation_files,
              report);
  check_mixture(deck, report);
  check_documents(deck, report);
  if (!d.validation.empty() && !d.validation_files.empty())
    report.add("data.validation and data.validation_files are both given; legal: one of them");
  if (deck.train.validate_every_steps > 0 && d.held_out().empty() && d.tasks.empty())
    report.add(equation("train.validate_every_steps", deck.train.validate_every_steps) +
               " without data.validation or data.validation_files; legal: 0, or give the files");
  check_tasks(deck, report);
  check_short_texts(deck, report);
}

}  // namespace forge
