#include <cstdio>

#include "app/common_facts.hpp"
#include "app/job.hpp"
#include "app/open_data.hpp"
#include "app/outputs.hpp"
#include "app/trained_model.hpp"
#include "app/verbs.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "train/batch_feed.hpp"
#include "train/references.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

template <class T>
void gradients(const CommandLine& line, const Deck& deck, const World& world) {
  RunSetup setup = make_setup(deck, world.rank());
  TrainingData data = open_data(setup, world);
  if (deck.preference.on()) read_references(reference_path(deck), data);
  prepare_device(setup, RunKind::gradients, world);
  Job<T> job(setup, RunKind::gradients, world);
  Watchdog& watchdog = world.watchdog();
  watchdog.start_step(1);
  const FirstBatch first(setup, data, job.mesh);
  watchdog.enter("gradients");
  BatchFeed feed(first.batch);
  job.session->compute_gradients(feed, 1, first.labels);
  const StepResult result = job.session->read_step(first.labels);
  if (!result.finite)
    throw Error(
        "forge gradients: the loss or the gradients of step 1 have NaN or Inf, of parameters that are all finite; "
        "nothing is written. legal: a precision that holds the model's numbers (train.precision: fp32 | fp64)",
        ExitCode::not_finite);
  watchdog.start_other(1, "export");
  inject_fault(world.rank(), "export");
  WholeTensors<T> tensors = job.whole_tensors();
  write_hf_tensors(line.output, setup.units, tensors, TensorSource::gradients, job.session->stream(),
                   {{"loss", format_exact(result.loss)},
                    {"total_loss", format_exact(result.total_loss)},
                    {"grad_norm", format_exact(result.grad_norm)},
                    {"format", "pt"}});
  if (world.rank() == 0) std::printf("%s\n", parameters_line(job.parameters).c_str());
  if (world.rank() == 0)
    for (const std::string& note : job.notes) std::printf("%s\n", note.c_str());
  if (world.rank() == 0)
    std::printf("loss %s  total_loss %s  grad_norm %s\nwritten: %s\n", format_exact(result.loss).c_str(),
                format_exact(result.total_loss).c_str(), format_exact(result.grad_norm).c_str(), line.output.c_str());
  job.mesh.world().barrier();
}

}  // namespace

void run_gradients(const CommandLine& line, const World& world) {
  const Deck deck = load_deck(line, Needs::training, world);
  std::list<OutputLock> locks;
  if (world.rank() == 0) {
    check_outputs(line, deck);
    locks = lock_outputs(line);
  }
  agree_on_start(deck, world);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { gradients<T>(line, deck, world); });
}

}  // namespace forge
