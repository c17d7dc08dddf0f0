#pragma once

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/storage_state.hpp"
#include "checkpoint/tensor_parts.hpp"
#include "comm/mesh.hpp"
#include "comm/world.hpp"
#include "core/random.hpp"
#include "plan/setup.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"

namespace forge::test {

inline constexpr int ranks_of_node = 8;

// A model of 16 layers, so small that each of 16,384 ranks writes 64 elements of a layer, the least of a shard.
inline Deck deck_on_mesh(const MeshDeck& mesh) {
  Deck deck;
  deck.model.layers = 16;
  deck.model.width = 64;
  deck.model.heads = deck.model.kv_heads = 8;
  deck.model.head_dim = 8;
  deck.model.ffn = 240;
  deck.model.vocabulary = 64;
  deck.mesh = mesh;
  deck.train.zero_stage = 1;
  deck.train.steps = 3;
  deck.output.directory = "none";
  deck.train.sequence_tokens = 16;
  deck.train.microbatch_sequences = 1;
  deck.train.global_batch_sequences = mesh.dp_replicate * mesh.dp_shard * mesh.pp;
  return deck;
}

// n ranks, 64 to 16,384.
inline Deck deck_of(int n) {
  MeshDeck mesh;
  mesh.tp = 8;
  mesh.pp = n >= 16384 ? 16 : n >= 4096 ? 8 : n >= 256 ? 4 : 2;
  mesh.dp_shard = n >= 4096 ? 16 : n >= 1024 ? 8 : n >= 256 ? 4 : 2;
  mesh.dp_replicate = n / (mesh.tp * mesh.pp * mesh.dp_shard);
  return deck_on_mesh(mesh);
}
// The same model on half as many ranks, with other axes.
inline Deck deck_of_half(int n) {
  MeshDeck mesh = deck_of(n).mesh;
  mesh.tp = 4;
  mesh.cp = 2;
  mesh.pp /= 2;
  return deck_on_mesh(mesh);
}

// Setups of ranks, whose schedule is lowered once.
class Setups {
 public:
  explicit Setups(const Deck& deck)
      : deck_(deck),
        lowered_(lower(schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(deck.mesh.pp)))) {}
  const Deck& deck() const { return deck_; }
  RunSetup of(int rank) const { return make_setup(deck_, rank, lowered_); }

 private:
  Deck deck_;
  Schedule lowered_;
};

// A rank of a job on nodes of 8.
class ScaleWorld final : public ThreadRank {
 public:
  using ThreadRank::ThreadRank;

  int local_rank() const override { return rank() % ranks_of_node; }
  int local_size() const override { return std::min(size(), ranks_of_node); }
  int nodes() const override { return (size() + ranks_of_node - 1) / ranks_of_node; }
  int node(int rank) const override { return rank / ranks_of_node; }
  std::string node_name(int rank) const override { return "node" + std::to_string(node(rank)); }
};

// Of the tensor's element at a place in its row-major order.
inline float value_of(std::uint64_t name, std::int64_t place) {
  return static_cast<float>(mix(name, static_cast<std::uint64_t>(place)) >> 40);
}

// A rank's part of a model's parameters, as state_of() (checkpoint/storage_state.hpp) cuts them, with one tensor that
// every rank has whole. Elements are functions of their tensors and places.
class ScaleState {
 public:
  ScaleState(const RunSetup& setup, StateUse use) {
    StateTensors gathered;
    for (const LocalUnit& unit : setup.share.units) {
      const auto ranges = use == StateUse::write ? written_ranges(unit) : std::vector<Range>{unit.state()};
      for (const LocalPiece& piece : unit.pieces) {
        if (use == StateUse::write && !piece.owned) continue;
        const TensorPlace place = place_of(unit.parameters[piece.parameter], setup.spec.E());
        for (const Range& range : ranges) {
          const Range here = intersection(piece.range(), range);
          if (here.empty()) continue;
          for (const Box& box : boxes_within(piece.box, {here.begin - piece.offset, here.end - piece.offset}))
            add(gathered, {"parameters/" + place.name, DType::f32, place.shape, place.strip, {}}, place.box(box));
        }
      }
    }
    if (use == StateUse::read || setup.rank == 0) add(gathered, {"state/one", DType::f32, {3}, 0, {}}, {{0}, {3}});
    tensors_ = gathered.take();
  }

  const std::vector<StateTensor>& tensors() const { return tensors_; }
  void fill() {
    for_each([](float& element, float value) { element = value; });
  }
  // Elements that differ from fill()'s.
  std::int64_t wrong() {
    std::int64_t count = 0;
    for_each([&](float& element, float value) { count += element != value; });
    return count;
  }

 private:
  void add(StateTensors& gathered, const StateTensor& tensor, const Box& box) {
    auto& memory = memory_.emplace_back(static_cast<std::size_t>(box.size()), -1.0f);
    gathered.add(tensor, {box, reinterpret_cast<std::byte*>(memory.data())});
  }
  template <class F>
  void for_each(F f) {
    for (const StateTensor& tensor : tensors_) {
      const std::uint64_t name = hash_of(tensor.name);
      for (const StatePiece& piece : tensor.pieces)
        for (std::int64_t i = 0; i < piece.box.size(); ++i) {
          Extents index = index_at(piece.box.extent, i);
          for (std::size_t d = 0; d < index.size(); ++d) index[d] += piece.box.offset[d];
          f(reinterpret_cast<float*>(piece.data)[i], value_of(name, flat_index(tensor.shape, index)));
        }
    }
  }

  std::list<std::vector<float>> memory_;
  std::vector<StateTensor> tensors_;
};

// A part of a job: seconds of the processor from its first rank's begin to its last one's end, and messages and bytes
// of host values of the rank that has most of each (comm/host_traffic.hpp).
struct Cost {
  double begin = 1e30, end = 0;
  std::int64_t messages = 0, bytes = 0;
};

// The costs of a job's parts, of all of its ranks in one thread.
class Costs {
 public:
  template <class F>
  void measure(const char* part, const HostTraffic& traffic, F f) {
    Cost& cost = costs_[part];
    const std::int64_t messages = traffic.messages(), bytes = traffic.bytes();
    cost.begin = std::min(cost.begin, now());
    f();
    cost.end = std::max(cost.end, now());
    cost.messages = std::max(cost.messages, traffic.messages() - messages);
    cost.bytes = std::max(cost.bytes, traffic.bytes() - bytes);
  }
  const Cost& of(const std::string& part) const { return costs_.at(part); }
  const std::map<std::string, Cost>& all() const { return costs_; }

 private:
  static double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
  std::map<std::string, Cost> costs_;
};

}  // namespace forge::test
