#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../device_values.hpp"
#include "comm/thread_communicator.hpp"
#include "config/schedule_name.hpp"
#include "config/write_deck.hpp"
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
  WholeState whole;
  std::vector<StateTensor> tensors;
  for (const StoredTensor& t : files.manifest().tensors) {
    auto& bytes = whole[t.name];
    bytes.resize(static_cast<std::size_t>(element_count(t.shape)) * size_of(t.type));
    tensors.push_back({t.name, t.type, t.shape, 0, {{{Extents(t.shape.size(), 0), t.shape}, bytes.data()}}});
  }
  files.read(tensors);
  return whole;
}

// The bytes of a piece of a session's state.
template <class T>
std::vector<std::byte> bytes_of(Session<T>& session, const StateTensor& tensor, const StatePiece& piece) {
  const auto bytes = piece.box.size() * static_cast<std::int64_t>(size_of(tensor.type));
  return values_of(session.stream(), View<const std::byte, 1>(piece.data, {{bytes}}));
}

// "" where all of a rank's state, copies included, equals the whole tensors.
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
      if (expected != bytes_of(session, tensor, piece)) return tensor.name + " has other values";
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
    for (const StatePiece& piece : tensor.pieces) {
      const std::vector<std::byte> wrong(bytes_of(session, tensor, piece).size(), std::byte{0xff});
      copy_to_device(session.stream(), piece.data, wrong.data(), wrong.size());
      session.stream().synchronize();
    }
}

// The copy of device memory for a save.
inline auto copy_from(Stream& stream) {
  return [&stream](void* to, const void* from, std::size_t bytes) {
    copy_to_host(stream, to, from, bytes);
    stream.synchronize();
  };
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
        plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, RunKind::training, setup.smaller);
    session = std::make_unique<Session<T>>(setup, plan.total(), RunKind::training, mesh, 1);
  }
  std::vector<StepRecord> train(const RunProgress& start) {
    std::vector<StepRecord> records;
    const TrainingLog log(nullptr, &records);
    Checkpoints<T> checkpoints(
        *session, {.deck = write_deck(setup.deck), .build = "test", .data = data_fingerprint(data.stream(setup))}, log);
    Trainer<T>(*session, data, 1, log, start, &checkpoints).run();
    return records;
  }
  RunProgress restart_from(const std::string& path, std::vector<std::string>& notes) {
    return restart(*session, setup.deck, {path}, data_fingerprint(data.stream(setup)), notes);
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
  deck.schedule.virtual_stages = layout.chunks;
  const std::string rule = illegality(deck);
  if (!rule.empty()) throw Error(std::string(layout.name) + ": " + rule);
  return deck;
}

// Trains in fp64 on `layout` from the state that `start` gives a rank; the state at the end.
template <class Start>
WholeState trained_state(const Deck& model, const Layout& layout, Start start) {
  const Deck deck = deck_on(model, layout);
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    Rank<double> rank(world, deck);
    rank.train(start(rank));
  });
  return whole_state(deck.checkpoint.directory + "/" + step_name(deck.train.steps));
}

inline auto from_initial_values() {
  return [](Rank<double>& rank) {
    rank.session->initialise();
    return RunProgress{};
  };
}

}  // namespace forge::test
