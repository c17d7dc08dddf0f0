#include <cmath>
#include <cstdio>

#include "app/job.hpp"
#include "app/verbs.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

template <class T>
void evaluate(const CommandLine& line, const Deck& deck, Environment& environment) {
  const RunSetup setup = make_setup(deck);
  const TrainingData data(setup);
  const TokenSet& set = data.validation ? *data.validation : data.training;
  Job<T> job(setup, RunKind::evaluation, environment);
  Communicator& replicas = job.mesh.replicas();
  ValidationSet validation(set, deck.train.validation_sequences, deck.train.microbatch_sequences, replicas.size(),
                           replicas.rank());
  const EvaluationResult result = evaluate_set(*job.session, validation, replicas);
  if (environment.rank() != 0) return;
  const double labels = static_cast<double>(result.labels);
  const double bytes = line.text_bytes > 0 ? static_cast<double>(line.text_bytes) : labels;
  std::printf("%s files, %lld sequences, %lld labels\n", data.validation ? "validation" : "training",
              static_cast<long long>(validation.sequences()), static_cast<long long>(result.labels));
  std::printf("loss %.17g nats a token\nperplexity %.10g\nbits per byte %.10g%s\n", result.loss, std::exp(result.loss),
              result.loss * labels / (std::log(2.0) * bytes),
              line.text_bytes > 0 ? "" : " (one byte a token; --bytes N where it isn't so)");
}

}  // namespace

void run_evaluate(const CommandLine& line, Environment& environment) {
  const Deck deck = load_deck(line, Needs::training, environment.size());
  agree_on_deck(deck, environment);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { evaluate<T>(line, deck, environment); });
}

}  // namespace forge
