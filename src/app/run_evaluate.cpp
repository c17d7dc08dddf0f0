#include <cmath>
#include <cstdio>

#include "app/common_facts.hpp"
#include "app/job.hpp"
#include "app/open_data.hpp"
#include "app/token_bytes.hpp"
#include "app/trained_model.hpp"
#include "app/verbs.hpp"
#include "config/byte_vocabulary.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "tokenizer/model_ids.hpp"
#include "train/job_report.hpp"
#include "train/references.hpp"
#include "train/validations.hpp"

namespace forge {

namespace {

// A set to evaluate: held-out files, or those that are trained on.
struct Evaluated {
  std::string title, of_set;  // "web", " of set web"; else "validation files", "training files", ""
  std::int64_t sequences = 0;
  EvaluationResult result;
};

// What tokens are that are bytes: of sets without a name all labels count.
std::string bits_text(const CommandLine& line, const Deck& deck, const Evaluated& set) {
  const EvaluationResult& result = set.result;
  const double bits = result.bits();
  if (line.text_bytes > 0) return formatted("bits per byte %.10g", bits / static_cast<double>(line.text_bytes));
  if (result.bytes > 0)
    return formatted("bits per byte %.10g (%s of text)", bits / static_cast<double>(result.bytes),
                     counted(result.bytes, "byte").c_str());
  const double of_label = bits / static_cast<double>(result.labels);
  if (has_byte_vocabulary(deck))
    return formatted("bits per byte %.10g (one byte a token%s)", of_label,
                     deck.model.vocabulary > byte_vocabulary ? ", document ends among them" : "");
  return formatted("bits per token %.10g (--tokenizer or --bytes N: bits per byte)", of_label);
}

// What a loss can't be.
void check_result(const Evaluated& set) {
  if (set.result.labels == 0)
    throw BadInput("forge evaluate: no token of the sequences" + set.of_set +
                   " is a label, so that there is no loss; legal: files in which some "
                   "are (masks, document ends and packing say which)");
  if (!std::isfinite(set.result.loss))
    throw Error("forge evaluate: the loss" + set.of_set + " is " + (std::isnan(set.result.loss) ? "NaN" : "Inf") +
                    ", of parameters that are all finite; legal: a precision that holds the model's numbers "
                    "(--precision fp32 | fp64)",
                ExitCode::not_finite);
}

void print_result(const CommandLine& line, const Deck& deck, const Evaluated& set) {
  const EvaluationResult& result = set.result;
  if (result.pairs) {
    std::printf("%s, %s\nloss %.17g nats a pair\n", set.title.c_str(), counted(result.labels, "pair").c_str(),
                result.loss);
    std::printf("reward margin %.10g\nreward accuracy %.10g\n", result.pairs->margin, result.pairs->accuracy);
    return;
  }
  std::printf("%s, %s, %lld labels\n", set.title.c_str(), counted(set.sequences, "sequence").c_str(),
              static_cast<long long>(result.labels));
  std::printf("loss %.17g nats a token\nperplexity %.10g\n", result.loss, std::exp(result.loss));
  std::printf("%s\n", bits_text(line, deck, set).c_str());
}

// Of the whole text, or by the tokenizer; of sets with names also where tokens are bytes.
bool counts_bytes(const CommandLine& line, const Deck& deck) {
  const bool tokenizer = !line.tokenizer.empty() || !tokenizer_path(deck.model).empty();
  return line.text_bytes == 0 && (tokenizer || !line.pattern.empty() || !deck.data.validation.empty());
}

void check_sets(const CommandLine& line, const Deck& deck) {
  const DataDeck& data = deck.data;
  if (data.held_out().empty() && data.sources.size() > 1)
    throw BadInput(
        "evaluate: the deck's data is a mixture, of which no set of samples is the whole; legal: give "
        "data.validation_files, or one source");
  if (line.text_bytes > 0 && data.validation.size() > 1)
    throw BadInput(
        "--bytes " + std::to_string(line.text_bytes) + " with " + std::to_string(data.validation.size()) +
        " sets of data.validation, each of which has a text of its own; legal: with one set, or --tokenizer");
}

template <class T>
std::vector<Evaluated> evaluate_sets(Session<T>& session, const TrainingData& data, const World& world) {
  const RunSetup& setup = session.setup();
  ValidationBatches batches = validation_batches(setup, data);
  std::vector<ValidationSet> sets = validation_sets(setup, data, batches);
  const bool held_out = !sets.empty();
  if (!held_out)
    sets.emplace_back(*data.training.front(),
                      validation_sequences(*data.training.front(), {}, setup.deck.train.validation_sequences),
                      setup.replicas(), setup.share.data_rank, batches);
  world.watchdog().start_other(0, "evaluation");
  inject_fault(world.rank(), "evaluation");
  std::vector<Evaluated> results;
  for (ValidationSet& set : sets) {
    const bool named = !set.name().empty();
    results.push_back({named      ? set.name()
                       : held_out ? "validation files"
                                  : "training files",
                       named ? " of set " + set.name() : "", set.sequences(), evaluate_set(session, set)});
  }
  return results;
}

template <class T>
void evaluate(const CommandLine& line, const Deck& deck, const World& world, const std::string& choice) {
  check_sets(line, deck);
  RunSetup setup = make_setup(deck, world.rank());
  TrainingData data = open_data(setup, world);
  if (deck.preference.on()) read_references(reference_path(deck), data);
  if (counts_bytes(line, deck)) data.token_bytes = token_bytes(deck, world, line.tokenizer, line.pattern);
  prepare_device(setup, RunKind::evaluation, world);
  Job<T> job(setup, RunKind::evaluation, world);
  const std::vector<Evaluated> sets = evaluate_sets(*job.session, data, world);
  if (world.rank() != 0) return;
  for (const Evaluated& set : sets) check_result(set);
  std::printf("%s%s\n", parameters_line(job.parameters).c_str(), choice.c_str());
  for (const std::string& note : job.notes) std::printf("%s\n", note.c_str());
  for (const Evaluated& set : sets) print_result(line, deck, set);
}

}  // namespace

void run_evaluate(const CommandLine& line, const World& world) {
  Deck deck = load_deck(line, Needs::training, world);
  agree_on_start(deck, world);
  const std::string choice = choose_parameters(line, deck, *world.make_world());
  refuse_missing_history(deck);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { evaluate<T>(line, deck, world, choice); });
}

}  // namespace forge
