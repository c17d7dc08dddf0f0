#include <cmath>
#include <cstdio>

#include "app/job.hpp"
#include "app/verbs.hpp"
#include "core/faults.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

template <class T>
void evaluate(const CommandLine& line, const Deck& deck, const World& world) {
  const RunSetup setup = make_setup(deck, world.rank());
  const TrainingData data(setup);
  const TokenSet& set = data.validation ? *data.validation : data.training;
  Job<T> job(setup, RunKind::evaluation, world);
  ValidationSet validation(set, deck.train.validation_sequences, deck.train.microbatch_sequences, setup.replicas(),
                           setup.share.data_rank, setup.rows());
  world.watchdog().start_other(0, "evaluation");
  inject_fault(world.rank(), "evaluation");
  const EvaluationResult result = evaluate_set(*job.session, validation);
  if (world.rank() != 0) return;
  const double labels = static_cast<double>(result.labels);
  const double bytes = line.text_bytes > 0 ? static_cast<double>(line.text_bytes) : labels;
  std::printf("%s files, %lld sequences, %lld labels\n", data.validation ? "validation" : "training",
              static_cast<long long>(validation.sequences()), static_cast<long long>(result.labels));
  std::printf("loss %.17g nats a token\nperplexity %.10g\nbits per byte %.10g%s\n", result.loss, std::exp(result.loss),
              result.loss * labels / (std::log(2.0) * bytes),
              line.text_bytes > 0 ? "" : " (one byte a token; --bytes N where it isn't so)");
}

}  // namespace

void run_evaluate(const CommandLine& line, const World& world) {
  const Deck deck = load_deck(line, Needs::training, world);
  agree_on_deck(deck, world);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { evaluate<T>(line, deck, world); });
}

}  // namespace forge
