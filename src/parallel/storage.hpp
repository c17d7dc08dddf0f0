#pragma once

#include <array>
#include <vector>

#include "comm/communicator.hpp"
#include "core/to_size.hpp"
#include "device/arena.hpp"
#include "device/stream.hpp"
#include "layout/unit_buffers.hpp"
#include "nn/parameter_views.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// A unit on this rank: its layout, its flat buffers, and where layers find its weights and add to its gradients now.
// Gradients have the accumulation type, and so have master weights, or they are those in the compute type
// (optimizer.master_weights; optimizer.gradients, of sums over microbatches). Buffers without a use in a run are empty.
template <class T>
struct RankUnit {
  using A = acc_t<T>;
  RankUnit(Arena& arena, Stream& stream, const LocalUnit& local, const Precision& precision, StorageKind kind);

  const LocalUnit& local;
  Range state;                 // the part of the unit that this rank updates
  std::vector<Range> counted;  // the elements that it adds to norms
  bool master_is_copy;         // master weights are `copy`, and `master` is empty
  View<A, 1> master;           // (state) master weights
  View<T, 1> copy;             // (state) in the compute type; `master` itself where the types agree
  View<T, 1> whole;            // (elements) the whole unit's weights, where they have a place for the whole run
  View<A, 1> gradient;         // (state) of the step, reduced
  View<A, 1> sums;             // (elements) sums of this rank's microbatches; `gradient` is a part of it
  View<T, 1> narrow_gradient;  // in the place of `gradient`, which is then a part of a pool's buffer for a time only
  View<T, 1> narrow_sums;      // in the place of `sums`
  View<A, 1> vectors;  // (elements − vectors_begin) sums of the vectors, where matrices have a buffer of a pool
  // The optimizer's states, in the order of its declaration; `kept`: the unit's elements that it has.
  struct OptimizerBuffer {
    StateBuffer declared;
    std::vector<Range> kept;
    void* data;

    bool has(std::int64_t element) const { return at(element) != nullptr; }
    // The element's state; null: the buffer hasn't the element.
    std::byte* at(std::int64_t element) const {
      std::int64_t before = 0;
      for (const Range& range : kept) {
        if (element >= range.begin && element < range.end)
          return static_cast<std::byte*>(data) + to_size(before + element - range.begin) * size_of(declared.type);
        before += range.size();
      }
      return nullptr;
    }
  };
  std::vector<OptimizerBuffer> optimizer;

  // State that tasks change: where gathered weights are now, for each of the passes that run at once, and places for
  // gradients, null: nowhere; when the last gathers end.
  std::array<const T*, 2> gathered_weights{};
  A* matrix_sums = nullptr;
  std::array<Event, 2> gathered;

  // Whether the step's gradient is `narrow_gradient`.
  bool rounds_gradients() const { return local.zero.rounds_gradients; }
  // f(the step's gradient), which is of type A or T.
  template <class F>
  void with_gradient(F f) const {
    if constexpr (!std::is_same_v<A, T>)
      if (rounds_gradients()) return f(narrow_gradient);
    f(gradient);
  }
  // Whether the weights to use are averages of the master weights.
  bool averages() const { return !optimizer.empty() && optimizer.front().declared.averages; }
  // Whole weights: where they are shared, between ParameterGather::wait() and release().
  const T* weights(Pass pass) const {
    const T* const weights = gathered_weights[pass != Pass::forward && local.zero.tracks > 1];
    require(weights != nullptr, "a layer reads weights that are not gathered");
    return weights;
  }
  // Where the gradients of matrices are added: a buffer as long as the unit. Units that take turns have one between
  // GradientSync::clear() and reduce().
  A* matrices() const {
    require(matrix_sums != nullptr, "a layer adds to a unit's gradients that have no place");
    return matrix_sums;
  }
  // Where the gradients of vectors are added, over the step.
  UnitPart<A> vector_sums() const {
    return sums.empty() ? UnitPart<A>{vectors.data, local.vectors_begin} : UnitPart<A>{sums.data};
  }
  // Clears the sums that tasks add to over the step.
  void zero_gradients(Stream& stream) const;
  // Copies the master weights into the compute type, where that is another.
  void convert_master(Stream& stream) const;

 private:
  // Sets where gradients are; null: nowhere.
  void set_gradients(void* whole_unit, void* shard);
};

// The units of a rank, allocated once from layout/unit_buffers.hpp's lists. Zero at the start.
template <class T>
class ParameterStorage {
 public:
  using A = acc_t<T>;
  ParameterStorage(Arena& arena, Stream& stream, const std::vector<LocalUnit>& units, const Precision& precision,
                   StorageKind kind);
  ParameterStorage(const ParameterStorage&) = delete;

  const std::vector<LocalUnit>& units() const { return units_; }
  const LocalUnit& local(std::size_t i) const { return units_[i]; }
  const RankUnit<T>& unit(std::size_t i) const { return storage_[i]; }
  RankUnit<T>& unit(std::size_t i) { return storage_[i]; }
  std::size_t size() const { return storage_.size(); }
  void zero_gradients(Stream& stream) const;
  // Sets the master weights of unit u, all of its state, and their copies. values_of(parameter, elements) gives a
  // function of an element of the whole tensor, which is called within this range only; a parameter comes in several
  // ranges, one after the other. Host work in pieces of bounded size, so that no second unit is ever in memory. The
  // caller tells the ParameterGather.
  template <class F>
  void fill(Stream& stream, std::size_t u, F values_of);
  // Gives the state of unit u, as the first of these ranks has filled it, to the others, which hold the same part of
  // the unit.
  void share(Stream& stream, std::size_t u, Communicator& ranks);
  // Draws the initial values of every parameter, or of adapters alone.
  void initialise(Stream& stream, std::uint64_t seed, bool adapters_only = false);
  // Likewise of all of unit u, also of other ranks' parts: to(elements). Gaps get zeros.
  void draw_whole(Stream& stream, std::size_t u, std::uint64_t seed, View<T, 1> to) const;
  // Sets the copies in the compute type from master weights that were written from outside.
  void update_copies(Stream& stream);

 private:
  // Initial values of a part of unit u, on the device, into to(part); gaps stay as they are.
  template <class V>
  void draw(Stream& stream, std::size_t u, std::uint64_t seed, const Range& part, const View<V, 1>& to) const;
  // f(part), one behind the other, with parts that a host holds easily.
  template <class F>
  static void for_parts(const Range& range, F f) {
    constexpr std::int64_t most = std::int64_t{1} << 21;
    for (std::int64_t at = range.begin; at < range.end; at += most) f(Range{at, std::min(at + most, range.end)});
  }
  // fill()'s values of a part of the unit.
  template <class F>
  std::vector<A> values_of_part(Stream& stream, std::size_t u, const Range& part, F& values_of) const;
  // Elements of the state from `begin`, which the caller may overwrite afterwards.
  void upload(Stream& stream, std::size_t u, std::int64_t begin, const std::vector<A>& values);

  std::vector<LocalUnit> units_;
  std::vector<RankUnit<T>> storage_;
};

template <class T>
template <class F>
void ParameterStorage<T>::fill(Stream& stream, std::size_t u, F values_of) {
  for_parts(storage_[u].state, [&](const Range& part) {
    upload(stream, u, part.begin - storage_[u].state.begin, values_of_part(stream, u, part, values_of));
  });
  storage_[u].convert_master(stream);
  stream.synchronize();
}

template <class T>
template <class F>
std::vector<acc_t<T>> ParameterStorage<T>::values_of_part(Stream& stream, std::size_t u, const Range& part,
                                                          F& values_of) const {
  std::vector<A> values(to_size(part.size()), A(0));
  const std::vector<ElementRun> runs = runs_of(units_[u], part);
  for (std::size_t begin = 0, end = 0; begin < runs.size(); begin = end) {
    // The runs of one piece follow each other.
    while (end < runs.size() && runs[end].piece == runs[begin].piece) ++end;
    const auto value = values_of(units_[u].parameters[runs[begin].piece->parameter],
                                 Range{runs[begin].global, runs[end - 1].global + runs[end - 1].count});
    for (std::size_t r = begin; r < end; ++r) {
      const ElementRun& run = runs[r];
      A* to = values.data() + (run.local - part.begin);
      const int threads = stream.threads();
#pragma omp parallel for num_threads(threads) schedule(static) if (run.count > 4096)
      for (std::int64_t i = 0; i < run.count; ++i) to[i] = static_cast<A>(value(run.global + i));
    }
  }
  return values;
}

}  // namespace forge
