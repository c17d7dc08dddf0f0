#include <cmath>
#include <cstdio>

#include "app/job.hpp"
#include "app/open_data.hpp"
#include "app/trained_model.hpp"
#include "app/verbs.hpp"
#include "config/byte_vocabulary.hpp"
#include "core/faults.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

// Only of bytes it is known how many a token stands for.
std::string bits_text(const CommandLine& line, const Deck& deck, const EvaluationResult& result) {
  const double labels = static_cast<double>(result.labels), bits = result.loss * labels / std::log(2.0);
  char text[128];
  if (line.text_bytes > 0)
    std::snprintf(text, sizeof text, "bits per byte %.10g", bits / static_cast<double>(line.text_bytes));
  else if (has_byte_vocabulary(deck))
    std::snprintf(text, sizeof text, "bits per byte %.10g (one byte a token%s)", bits / labels,
                  deck.model.vocabulary > byte_vocabulary ? ", document ends among them" : "");
  else
    std::snprintf(text, sizeof text, "bits per token %.10g (--bytes N: bits per byte)", bits / labels);
  return text;
}

template <class T>
void evaluate(const CommandLine& line, const Deck& deck, const World& world) {
  const RunSetup setup = make_setup(deck, world.rank());
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
  if (const std::string from = parameters_text(deck); !from.empty()) std::printf("%s\n", from.c_str());
  for (const std::string& note : job.notes) std::printf("%s\n", note.c_str());
  std::printf("%s files, %lld sequences, %lld labels\n", data.validation ? "validation" : "training",
              static_cast<long long>(validation.sequences()), static_cast<long long>(result.labels));
  std::printf("loss %.17g nats a token\nperplexity %.10g\n", result.loss, std::exp(result.loss));
  std::printf("%s\n", bits_text(line, deck, result).c_str());
}

}  // namespace

void run_evaluate(const CommandLine& line, const World& world) {
  Deck deck = load_deck(line, Needs::training, world);
  agree_on_deck(deck, world);
  choose_parameters(line, deck, world.rank() == 0);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { evaluate<T>(line, deck, world); });
}

}  // namespace forge
