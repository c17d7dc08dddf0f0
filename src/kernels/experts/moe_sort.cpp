#include "core/balanced_rows.hpp"
#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "kernels/rows/select_key.hpp"

namespace forge {

namespace {

constexpr std::int64_t chunk_assignments = 256;

FORGE_INLINE std::int64_t end_of(std::int64_t chunk, std::int64_t assignments) {
  return (chunk + 1) * chunk_assignments < assignments ? (chunk + 1) * chunk_assignments : assignments;
}

// The assignments of (R, k), one by one, and what is kept of each.
template <class T>
struct Assignments {
  T* data;
  std::int64_t pitch, chosen;

  FORGE_INLINE T& operator[](std::int64_t q) const {
    const std::int64_t r = quotient(q, chosen);
    return data[r * pitch + q - r * chosen];
  }
};
template <class T>
Assignments<T> one_by_one(const View<T, 2>& x) {
  return {x.data, x.pitch, x.columns()};
}

}  // namespace

// Counting sort: how many of each expert a chunk of assignments has, and where in its chunk each stands (kept in
// place); their sums over the chunks before, and over the experts before; the places.
void moe_sort(Stream& stream, View<const std::int32_t, 2> experts, View<std::int32_t, 2> workspace,
              View<std::int64_t, 1> counts, View<std::int64_t, 1> offsets, View<std::int32_t, 1> order,
              View<std::int32_t, 2> place) {
  note_rows(stream, "moe_sort", bytes_in(experts, place), bytes_in(place, order));
  const std::int64_t E = counts.rows(), assignments = experts.rows() * experts.columns();
  const std::int64_t chunks = moe_sort_rows(assignments);
  require(offsets.rows() == E + 1 && order.rows() == assignments && place.size() == assignments &&
              workspace.rows() >= chunks && workspace.columns() >= E,
          "moe_sort: shapes differ");
  const auto all = one_by_one(experts);
  const auto places = one_by_one(place);
  parallel_rows(stream, chunks, [=] FORGE_LAMBDA(std::int64_t chunk, Team team) {
    std::int32_t* to = workspace.row(chunk);
    const std::int64_t begin = chunk * chunk_assignments;
    team.each(E, [=](std::int64_t e) { to[e] = 0; });
    team.count_keys(
        end_of(chunk, assignments) - begin, to, [=](std::int64_t i) { return all[begin + i]; },
        [=](std::int64_t i, std::int32_t before) { places[begin + i] = before; });
  });
  parallel_rows(stream, E, [=] FORGE_LAMBDA(std::int64_t e, Team team) {
    std::int32_t* const column = workspace.data + e;
    const std::int64_t pitch = workspace.pitch;
    const auto count = team.template scan<std::int32_t>(
        chunks, [=](std::int64_t chunk) { return column[chunk * pitch]; },
        [=](std::int64_t chunk, std::int32_t before) { column[chunk * pitch] = before; });
    if (team.leads()) counts[e] = count;
  });
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const auto used = team.template scan<std::int64_t>(
        E, [=](std::int64_t e) { return counts[e]; },
        [=](std::int64_t e, std::int64_t before) { offsets[e] = before; });
    if (team.leads()) offsets[E] = used;
  });
  parallel_rows(stream, chunks, [=] FORGE_LAMBDA(std::int64_t chunk, Team team) {
    const std::int64_t begin = chunk * chunk_assignments, used = offsets[E];
    const std::int32_t* before = workspace.row(chunk);
    team.each(end_of(chunk, assignments) - begin, [=](std::int64_t i) {
      const std::int64_t q = begin + i;
      const std::int32_t e = all[q];
      std::int32_t& at = places[q];
      at = e < 0 ? -1 : static_cast<std::int32_t>(offsets[e]) + before[e] + at;
      if (e >= 0) order[at] = static_cast<std::int32_t>(q);
      if (q >= used) order[q] = -1;
    });
  });
}

void received_order(Stream& stream, View<const std::int64_t, 2> counts, ReceivedRound round,
                    View<std::int64_t, 1> blocks, View<std::int64_t, 1> offsets, View<std::int32_t, 1> order,
                    View<std::int32_t, 2> place) {
  note_rows(stream, "received_order", 0, bytes_in(order, place));
  const std::int64_t sources = round.ep * round.etp, here = offsets.rows() - 1, B = here * sources;
  require(counts.rows() == sources && blocks.rows() == B + 1, "received_order: shapes differ");
  // Begins of blocks by expert and then by source, whose numbers go by etp coordinate and then by ep coordinate.
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const auto in_round = [=](std::int64_t at) {
      const std::int64_t place = at - round.begin;
      return place < 0 ? 0 : place < round.rows ? place : round.rows;
    };
    const auto all = team.template scan<std::int64_t>(
        B,
        [=](std::int64_t b) {
          const std::int64_t e = quotient(b, sources), from = b - e * sources, etp = quotient(from, round.ep);
          return counts.row((from - etp * round.ep) * round.etp + etp)[round.first + e];
        },
        [=](std::int64_t b, std::int64_t before) {
          const std::int64_t e = quotient(b, sources);
          blocks[b] = in_round(before);
          if (b == e * sources) offsets[e] = in_round(before);
        });
    if (team.leads()) blocks[B] = offsets[here] = in_round(all);
  });
  parallel_rows(stream, B, [=] FORGE_LAMBDA(std::int64_t arrival, Team team) {
    const auto block = [=](std::int64_t i) {
      const std::int64_t from = quotient(i, here);
      return (i - from * here) * sources + from;
    };
    const auto size = [=](std::int64_t b) { return blocks[b + 1] - blocks[b]; };
    const auto before = team.template sum<std::int64_t>(arrival, [=](std::int64_t i) { return size(block(i)); });
    const std::int64_t b = block(arrival), begin = blocks[b];
    team.each(size(b), [=](std::int64_t i) {
      order[begin + i] = static_cast<std::int32_t>(before + i);
      place.row(before + i)[0] = static_cast<std::int32_t>(begin + i);
    });
  });
}

// Bin scope · E + expert. Of a bin with more assignments than its scope's capacity those stay that come before or at
// the last one to stay, in the order of weight, position and row: it is found in so many passes over the bin as these
// have bits.
template <class A>
void capacity_drop(Stream& stream, CapacityOptions options, View<const std::int32_t, 2> experts,
                   View<const A, 2> weights, View<const std::int32_t, 1> scope, View<const std::int32_t, 1> positions,
                   CapacityWorkspace w, View<std::int32_t, 2> kept, View<std::int64_t, 1> dropped) {
  const std::int64_t E = options.experts, k = experts.columns(), assignments = experts.rows() * k;
  const bool by_probability = options.by == DropBy::probability;
  require(w.counts.rows() == options.scopes * E, "capacity_drop: shapes differ");
  note_rows(stream, "capacity_drop", bytes_in(experts, kept), bytes_in(w.bins, kept));
  parallel_for(stream, assignments, [=] FORGE_LAMBDA(std::int64_t q) {
    const std::int64_t r = quotient(q, k), c = q - r * k;
    const std::int32_t e = experts.row(r)[c];
    w.bins.row(r)[c] = e < 0 || scope[r] < 0 ? -1 : static_cast<std::int32_t>(scope[r] * E + e);
    kept.row(r)[c] = e;
  });
  moe_sort(stream, w.bins, w.sort, w.counts, w.offsets, w.order, w.place);
  const auto weight_of = one_by_one(weights);
  const auto kept_of = one_by_one(kept);
  parallel_rows(stream, options.scopes * E, [=] FORGE_LAMBDA(std::int64_t bin, Team team) {
    const std::int64_t n = w.counts[bin], first = quotient(bin, E) * E;
    const std::int64_t capacity = balanced_rows(options.factor, w.offsets[first + E] - w.offsets[first], E);
    if (n <= capacity) return;
    const std::int32_t* others = w.order.data + w.offsets[bin];
    const auto weight = [=](std::int64_t i) { return by_probability ? falling_key(weight_of[others[i]]) : 0; };
    const auto row = [=](std::int64_t i) { return static_cast<std::uint64_t>(quotient(others[i], k)); };
    const auto position = [=](std::int64_t i) { return static_cast<std::uint64_t>(positions[quotient(others[i], k)]); };
    std::int64_t wanted = capacity;
    const std::uint64_t last_weight =
        by_probability ? select_key(
                             team, n, 8 * sizeof(A), wanted, [](std::int64_t) { return true; }, weight)
                       : 0;
    const auto same_weight = [=](std::int64_t i) { return weight(i) == last_weight; };
    const std::uint64_t last_position = select_key(team, n, 31, wanted, same_weight, position);
    const auto same = [=](std::int64_t i) { return same_weight(i) && position(i) == last_position; };
    const std::uint64_t last_row = select_key(team, n, 31, wanted, same, row);
    team.each(n, [=](std::int64_t i) {
      const std::uint64_t of_weight = weight(i), at = position(i);
      const bool stays = of_weight != last_weight ? of_weight < last_weight
                         : at != last_position    ? at < last_position
                                                  : row(i) <= last_row;
      if (!stays) kept_of[others[i]] = -1;
    });
  });
  const auto before = one_by_one(experts);
  const auto after = one_by_one(kept);
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const auto sum = team.template sum<std::int64_t>(
        assignments, [=](std::int64_t q) { return std::int64_t{before[q] >= 0 && after[q] < 0}; });
    if (team.leads()) dropped[0] += sum;
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(capacity_drop);

}  // namespace forge
