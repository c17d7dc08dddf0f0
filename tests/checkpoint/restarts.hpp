#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/write.hpp"
#include "core/bytes.hpp"
#include "layout_run.hpp"
#include "models.hpp"
#include "plan/memory.hpp"
#include "run_threads.hpp"
#include "sample.hpp"
#include "train/restart.hpp"
#include "train/trainer.hpp"

namespace forge::test {

// Whole tensors of a checkpoint, as bytes.
using WholeState = std::map<std::string, std::vector<std::byte>>;

inline WholeState whole_state(const std::string& path) {
  CheckpointFiles files(path);
  Stream stream(1);
  WholeState whole;
  std::vector<StateTensor> tensors;
  for (const StoredTensor& t : files.manifest().tensors) {
    auto& bytes = whole[t.name];
    bytes.resize(static_cast<std::size_t>(element_count(t.shape)) * size_of(t.type));
    tensors.push_back({t.name, t.type, t.shape, 0, {{{Extents(t.shape.size(), 0), t.shape}, bytes.data()}}});
  }
  files.read(tensors, stream);
  return whole;
}

// "" where all that a rank holds, copies included, is what the whole tensors have.
template <class T>
std::string difference(Session<T>& session, const WholeState& whole) {
  session.stream().synchronize();
  std::int64_t compared = 0;
  for (const StateTensor& tensor : session_state(session, StateUse::read)) {
    const auto found = whole.find(tensor.name);
    if (found == whole.end()) return tensor.name + " is not in the checkpoint";
    const Box all{Extents(tensor.shape.size(), 0), tensor.shape};
    for (const StatePiece& piece : tensor.pieces) {
      std::vector<std::byte> expected(static_cast<std::size_t>(piece.box.size()) * size_of(tensor.type));
      copy_part(piece.box, all, found->second.data(), piece.box, expected.data(), size_of(tensor.type));
      if (std::memcmp(expected.data(), piece.data, expected.size()) != 0) return tensor.name + " has other values";
      compared += piece.box.size();
    }
  }
  return compared > 0 ? "" : "nothing compared";
}

// Fills all that a rank would load with NaN.
template <class T>
void spoil(Session<T>& session) {
  session.stream().synchronize();
  for (const StateTensor& tensor : session_state(session, StateUse::read))
    for (const StatePiece& piece : tensor.pieces)
      std::memset(piece.data, 0xff, static_cast<std::size_t>(piece.box.size()) * size_of(tensor.type));
}

// A rank's session and data, without initial values.
template <class T>
struct Rank {
  RunSetup setup;
  Mesh mesh;
  TrainingData data;
  std::unique_ptr<Session<T>> session;

  Rank(Communicator& world, const Deck& deck)
      : setup(make_setup(deck, world.rank())), mesh(world.duplicate(), setup.mesh, groups_of(setup)), data(setup) {
    const MemoryPlan plan =
        plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, RunKind::training);
    session = std::make_unique<Session<T>>(setup, plan.total(), RunKind::training, mesh, 1);
  }
  std::vector<StepRecord> train(const RunProgress& start) {
    std::vector<StepRecord> records;
    const TrainingLog log(nullptr, &records);
    Checkpoints<T> checkpoints(*session, {write_deck(setup.deck), "test", data_fingerprint(data.training)}, log);
    Trainer<T>(*session, data, 1, log, start, &checkpoints).run();
    return records;
  }
  RunProgress restart_from(const std::string& path, std::vector<std::string>& notes) {
    return restart(*session, setup.deck, {path}, data_fingerprint(data.training), notes);
  }
};

struct Layout {
  const char* name;
  MeshDeck mesh;  // pp, dp_replicate, dp_shard, cp, tp, ep, etp
  std::int64_t zero_stage = 0;
  ScheduleName schedule = ScheduleName::one_f_one_b;
  std::int64_t chunks = 1;
};

// A model on a layout, checked. Throws Error with the layout's name where it is not legal.
inline Deck deck_on(const Deck& model, const Layout& layout) {
  Deck deck = model;
  deck.mesh = layout.mesh;
  deck.train.zero_stage = layout.zero_stage;
  deck.schedule.name = layout.schedule;
  deck.schedule.chunks_per_stage = layout.chunks;
  const std::string rule = illegality(deck);
  if (!rule.empty()) throw Error(std::string(layout.name) + ": " + rule);
  return deck;
}

}  // namespace forge::test
