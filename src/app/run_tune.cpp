#include <cstdio>

#include "app/job.hpp"
#include "app/open_data.hpp"
#include "app/outputs.hpp"
#include "app/product_table.hpp"
#include "app/verbs.hpp"
#include "config/text.hpp"
#include "device/memory.hpp"
#include "kernels/gemm.hpp"
#include "train/batch_feed.hpp"

namespace forge {

namespace {

// The shapes of all ranks: where several have one, the first rank's algorithm counts for all.
void write_table(const ProductAlgorithms& mine, const std::string& path, Communicator& ranks) {
  const std::vector<std::string> texts = ranks.gather_host(product_algorithms_text(mine));
  if (ranks.rank() != 0) return;
  ProductAlgorithms all;
  for (const std::string& text : texts) add_product_algorithms(text, path, all);
  write_text_file(path, product_algorithms_text(all));
  int faster = 0;
  double fastest = 0, first = 0;
  for (const auto& [shape, entry] : all.by_shape) {
    faster += entry.seconds < entry.first_seconds ? 1 : 0;
    fastest += entry.seconds;
    first += entry.first_seconds;
  }
  std::printf(
      "%zu shapes of products; another algorithm than the first is faster for %d; a call of each: %.1f us, %.1f "
      "us before\nwritten: %s\n",
      all.by_shape.size(), faster, 1e6 * fastest, 1e6 * first, path.c_str());
}

template <class T>
void tune(const CommandLine& line, const Deck& deck, const World& world) {
  RunSetup setup = make_setup(deck, world.rank());
  const TrainingData data = open_data(setup, world);
  prepare_device(setup, RunKind::gradients, world);
  Job<T> job(setup, RunKind::gradients, world);
  ProductAlgorithms measured;
  job.session->gemm().tune(measured);
  world.watchdog().start_step(1);
  const FirstBatch first(setup, data, job.mesh);
  world.watchdog().enter("products");
  BatchFeed feed(first.batch);
  job.session->compute_gradients(feed, 1, first.labels);
  job.session->stream().synchronize();
  world.watchdog().start_other(1, "table");
  write_table(measured, line.output, job.mesh.world());
}

}  // namespace

void run_tune(const CommandLine& line, const World& world) {
  Deck deck = load_deck(line, Needs::training, world);
  if (std::string(device_info().kind) == "cpu")
    throw BadInput("forge tune measures products on GPUs; this build computes on the CPU");
  std::list<OutputLock> locks;
  if (world.rank() == 0) {
    check_outputs(line, deck);
    locks = lock_outputs(line);
  }
  deck.machine.product_algorithms.clear();
  agree_on_deck(deck, world);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { tune<T>(line, deck, world); });
}

}  // namespace forge
