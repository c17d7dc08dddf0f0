#include <cmath>
#include <cstdio>

#include "app/common_facts.hpp"
#include "app/job.hpp"
#include "app/model_text.hpp"
#include "app/open_data.hpp"
#include "app/trained_model.hpp"
#include "app/verbs.hpp"
#include "config/byte_vocabulary.hpp"
#include "config/fp8_recipe.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/to_size.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

// Bytes of the text that the labels of the first sequences stand for; 0: the tokenizer is not known, or other labels
// counted.
std::int64_t bytes_of_labels(const CommandLine& line, const Deck& deck, const TokenSet& set, std::int64_t sequences,
                             std::int64_t labels) {
  const ModelText text(deck, line.tokenizer, line.pattern);
  if (!text.tokenizer()) return 0;
  std::vector<std::int64_t> bytes;
  for (std::int64_t id = 0; id < deck.model.vocabulary; ++id)
    bytes.push_back(text.bytes_of(static_cast<std::int32_t>(id)));
  Sample sample(deck.train.sequence_tokens);
  std::int64_t sum = 0, counted = 0;
  for (std::int64_t i = 0; i < sequences; ++i) {
    set.read(i, sample);
    for (const std::int32_t label : sample.labels) {
      if (label == masked_label) continue;
      sum += bytes[to_size(label)];
      ++counted;
    }
  }
  return counted == labels ? sum : 0;
}

// `bytes`: of the labels' text; 0: only of bytes it is known how many a token stands for.
std::string bits_text(const CommandLine& line, const Deck& deck, const EvaluationResult& result, std::int64_t bytes) {
  const double labels = static_cast<double>(result.labels), bits = result.loss * labels / std::log(2.0);
  if (line.text_bytes > 0) return formatted("bits per byte %.10g", bits / static_cast<double>(line.text_bytes));
  if (bytes > 0)
    return formatted("bits per byte %.10g (%lld bytes of text)", bits / static_cast<double>(bytes),
                     static_cast<long long>(bytes));
  if (has_byte_vocabulary(deck))
    return formatted("bits per byte %.10g (one byte a token%s)", bits / labels,
                     deck.model.vocabulary > byte_vocabulary ? ", document ends among them" : "");
  return formatted("bits per token %.10g (--tokenizer or --bytes N: bits per byte)", bits / labels);
}

// What a loss can't be.
void check_result(const EvaluationResult& result) {
  if (result.labels == 0)
    throw BadInput(
        "forge evaluate: no token of the sequences is a label, so that there is no loss; legal: files in which some "
        "are (masks, document ends and packing say which)");
  if (!std::isfinite(result.loss))
    throw Error("forge evaluate: the loss is " + std::string(std::isnan(result.loss) ? "NaN" : "Inf") +
                    ", of parameters that are all finite; legal: a precision that holds the model's numbers "
                    "(--precision fp32 | fp64)",
                ExitCode::not_finite);
}

template <class T>
void evaluate(const CommandLine& line, const Deck& deck, const World& world, const std::string& choice) {
  RunSetup setup = make_setup(deck, world.rank());
  const TrainingData data = open_data(setup, world);
  if (!data.validation && data.training.size() > 1)
    throw BadInput(
        "evaluate: the deck's data is a mixture, of which no set of samples is the whole; legal: give "
        "data.validation_files, or one source");
  const TokenSet& set = data.validation ? *data.validation : *data.training.front();
  prepare_device(setup, RunKind::evaluation, world);
  Job<T> job(setup, RunKind::evaluation, world);
  ValidationSet validation(set, deck.train.validation_sequences, deck.train.microbatch_sequences, setup.replicas(),
                           setup.share.data_rank, setup.rows());
  world.watchdog().start_other(0, "evaluation");
  inject_fault(world.rank(), "evaluation");
  const EvaluationResult result = evaluate_set(*job.session, validation);
  if (world.rank() != 0) return;
  check_result(result);
  const std::int64_t bytes =
      line.text_bytes > 0 ? 0 : bytes_of_labels(line, deck, set, validation.sequences(), result.labels);
  std::printf("%s%s\n", parameters_line(job.parameters).c_str(), choice.c_str());
  for (const std::string& note : job.notes) std::printf("%s\n", note.c_str());
  std::printf("%s files, %lld sequences, %lld labels\n", data.validation ? "validation" : "training",
              static_cast<long long>(validation.sequences()), static_cast<long long>(result.labels));
  std::printf("loss %.17g nats a token\nperplexity %.10g\n", result.loss, std::exp(result.loss));
  std::printf("%s\n", bits_text(line, deck, result, bytes).c_str());
}

// Scales of steps that were never trained are no one's.
void refuse_missing_history(const Deck& deck) {
  const TrainDeck& t = deck.train;
  if (t.precision != PrecisionName::fp8 || !properties_of(t.fp8_recipe).has_history() ||
      !deck.checkpoint.model_from.empty())
    return;
  throw BadInput(
      "forge evaluate: train.fp8_recipe = delayed has its scales from the steps of a training, which only its "
      "checkpoints hold; legal: --checkpoint DIR, another recipe (--set train.fp8_recipe=current), or --precision "
      "bf16");
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
