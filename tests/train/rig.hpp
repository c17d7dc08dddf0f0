#pragma once

#include <algorithm>
#include <vector>

#include "../device_values.hpp"
#include "comm/environment.hpp"
#include "comm/mesh.hpp"
#include "core/random.hpp"
#include "data/batch_rows.hpp"
#include "optim/optimizer.hpp"
#include "plan/memory.hpp"
#include "train/batch_feed.hpp"
#include "train/session.hpp"

namespace forge::test {

extern Environment* environment;

// A deck without files: whoever uses it makes its own batches.
inline Deck tiny_deck(PrecisionName precision = PrecisionName::fp64) {
  Deck d;
  d.model.layers = 3;
  d.model.width = 24;
  d.model.heads = 4;
  d.model.kv_heads = 2;
  d.model.head_dim = 8;
  d.model.ffn = 20;
  d.model.vocabulary = 29;
  d.model.initial_std = 0.2;
  d.mesh.dp_shard = 1;
  d.mesh.etp = 1;
  d.train.steps = 4;
  d.train.global_batch_sequences = 12;
  d.train.microbatch_sequences = 1;
  d.train.sequence_tokens = 9;
  d.train.precision = precision;
  d.optimizer.learning_rate = 1e-2;
  d.optimizer.decay_steps = 4;
  d.machine.workspace_mib = 1;
  return d;
}

// This rank's share of step `step`: tokens are a function of sample and position, so every split has the same samples.
inline HostBatch make_batch(const RunSetup& s, int rank, std::int64_t step) {
  HostBatch batch;
  const std::int64_t t = s.deck.train.sequence_tokens, b = s.deck.train.microbatch_sequences;
  batch.allocate(s.microbatches, b, t);
  for (std::int64_t row = 0; row < batch.sequences; ++row) {
    const std::int64_t sample =
        (step - 1) * s.deck.train.global_batch_sequences + (row / b * s.replicas() + rank) * b + row % b;
    for (std::int64_t p = 0; p < t; ++p) {
      const auto i = static_cast<std::size_t>(row * t + p);
      auto token = [&](std::int64_t at) {
        return static_cast<std::int32_t>(mix(static_cast<std::uint64_t>(sample), static_cast<std::uint64_t>(at)) %
                                         static_cast<std::uint64_t>(s.spec.V()));
      };
      batch.tokens[i] = token(p);
      batch.labels[i] = (sample + p) % 5 == 0 ? masked_label : token(p + 1);
      batch.positions[i] = static_cast<std::int32_t>(p);
      batch.documents[i] = p > 5 ? 1 : 0;
      batch.samples[i] = sample;
      batch.label_count += batch.labels[i] != masked_label;
    }
  }
  const std::int64_t rows = b * t;
  for (std::int64_t m = 0; m < s.microbatches; ++m) {
    const std::int32_t* k = batch.tokens.data() + m * rows;
    std::int32_t* o = batch.token_order.data() + m * rows;
    for (std::int64_t r = 0; r < rows; ++r) o[r] = static_cast<std::int32_t>(r);
    std::stable_sort(o, o + rows, [&](std::int32_t x, std::int32_t y) { return k[x] < k[y]; });
  }
  return batch;
}

// A session over all ranks of the test's world, with initial values.
template <class T>
struct Rig {
  RunSetup setup;
  MemoryPlan plan;
  Mesh mesh;
  Session<T> session;

  explicit Rig(const Deck& deck, RunKind kind = RunKind::training, int threads = 1)
      : Rig(environment->make_world(), deck, kind, threads) {}
  Rig(std::unique_ptr<Communicator> world, const Deck& deck, RunKind kind, int threads = 1)
      : setup(make_setup(deck, world->rank())),
        plan(plan_memory(setup.buffers, setup.share, setup.schedule,
                         static_cast<std::size_t>(deck.machine.workspace_mib) << 20, kind)),
        mesh(std::move(world), setup.mesh, groups_of(setup)),
        session(setup, plan.total(), kind, mesh, threads) {
    session.initialise();
  }

  // Of step `step`, with the samples of step `samples`, where that is another one.
  StepResult gradients(std::int64_t step, std::int64_t samples = 0) {
    const HostBatch batch = make_batch(setup, setup.share.data_rank, samples > 0 ? samples : step);
    LabelCounts labels = batch.label_counts();
    mesh.data().sum_host({&labels.main, 1});
    mesh.data().sum_host({&labels.tokens, 1});
    BatchFeed feed(batch);
    session.compute_gradients(feed, step, labels);
    return session.read_step(labels);
  }

  std::vector<double> all_gradients() const {
    std::vector<double> all;
    auto& storage = const_cast<Rig*>(this)->session.storage();
    for (std::size_t u = 0; u < storage.size(); ++u) {
      const auto g = values_of(const_cast<Rig*>(this)->session.stream(), storage.unit(u).gradient);
      for (const LocalPiece& piece : storage.local(u).pieces)  // padding depends on the number of ranks
        for (std::int64_t i = 0; i < piece.box.size(); ++i)
          all.push_back(static_cast<double>(g[static_cast<std::size_t>(piece.offset + i)]));
    }
    return all;
  }
};

}  // namespace forge::test
