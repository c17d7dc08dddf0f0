#include <cstdio>

#include "app/job.hpp"
#include "app/verbs.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "core/bytes.hpp"
#include "data/loader.hpp"
#include "train/batch_feed.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

template <class T>
void gradients(const CommandLine& line, const Deck& deck, Environment& environment) {
  const RunSetup setup = make_setup(deck);
  const TrainingData data(setup);
  Job<T> job(setup, RunKind::gradients, environment);
  Communicator& replicas = job.mesh.replicas();
  Loader loader(data.training, {deck.data.order, deck.train.seed, data.training.samples()},
                batch_share(setup, replicas.rank()), 1, 1);
  const HostBatch& batch = loader.next();
  std::int64_t labels = batch.label_count;
  replicas.sum_host({&labels, 1});
  BatchFeed feed(batch);
  job.session->compute_gradients(feed, 1, labels);
  const StepResult result = job.session->read_step(labels);
  if (environment.rank() == 0) {
    write_hf_tensors(line.output, job.session->storage(), TensorSource::gradients, job.session->stream(),
                     {{"loss", format_exact(result.loss)},
                      {"total_loss", format_exact(result.total_loss)},
                      {"grad_norm", format_exact(result.grad_norm)},
                      {"format", "pt"}});
    std::printf("loss %s  total_loss %s  grad_norm %s\nwritten: %s\n", format_exact(result.loss).c_str(),
                format_exact(result.total_loss).c_str(), format_exact(result.grad_norm).c_str(), line.output.c_str());
  }
  job.mesh.world().barrier();
}

}  // namespace

void run_gradients(const CommandLine& line, Environment& environment) {
  const Deck deck = load_deck(line, Needs::training, environment.size());
  agree_on_deck(deck, environment);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { gradients<T>(line, deck, environment); });
}

}  // namespace forge
