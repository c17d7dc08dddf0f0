#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/moe.hpp"

namespace forge {

namespace {

constexpr std::int64_t chunk_assignments = 256;

FORGE_INLINE std::int64_t end_of(std::int64_t chunk, std::int64_t assignments) {
  return (chunk + 1) * chunk_assignments < assignments ? (chunk + 1) * chunk_assignments : assignments;
}

struct Assignments {
  const std::int32_t* data;
  std::int64_t pitch, chosen;

  FORGE_INLINE std::int32_t operator[](std::int64_t q) const { return data[q / chosen * pitch + q % chosen]; }
};

// visit(q, e) for the assignments [begin, end) of every expert, in order for each of them. A thread of the host walks
// through the assignments once; on CUDA each worker of the team looks for those of its own experts.
template <class Visit>
FORGE_INLINE void each_assignment(Team team, std::int64_t E, Assignments experts, std::int64_t begin, std::int64_t end,
                                  Visit visit) {
  if (FORGE_DEVICE_CODE)
    team.each(E, [=](std::int64_t e) {
      for (std::int64_t q = begin; q < end; ++q)
        if (experts[q] == e) visit(q, e);
    });
  else
    for (std::int64_t q = begin; q < end; ++q)
      if (experts[q] >= 0) visit(q, static_cast<std::int64_t>(experts[q]));
}

}  // namespace

// Counting sort: counts of each chunk of assignments, their sums over the chunks before, and the places.
void moe_sort(Stream& stream, View<const std::int32_t, 2> experts, View<std::int32_t, 2> workspace,
              View<std::int64_t, 1> counts, View<std::int64_t, 1> offsets, View<std::int32_t, 1> order,
              View<std::int32_t, 2> place) {
  const std::int64_t E = counts.rows(), k = experts.columns(), assignments = experts.rows() * k;
  const std::int64_t chunks = moe_sort_rows(assignments);
  require(offsets.rows() == E + 1 && order.rows() == assignments && place.size() == assignments &&
              workspace.rows() >= chunks && workspace.columns() >= E,
          "moe_sort: shapes differ");
  const Assignments all{experts.data, experts.pitch, k};
  parallel_rows(stream, chunks, [=] FORGE_LAMBDA(std::int64_t chunk, Team team) {
    std::int32_t* to = workspace.row(chunk);
    team.each(E, [=](std::int64_t e) { to[e] = 0; });
    each_assignment(team, E, all, chunk * chunk_assignments, end_of(chunk, assignments),
                    [=](std::int64_t, std::int64_t e) { ++to[e]; });
  });
  parallel_for(stream, E, [=] FORGE_LAMBDA(std::int64_t e) {
    std::int32_t before = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int32_t here = workspace.row(chunk)[e];
      workspace.row(chunk)[e] = before;
      before += here;
    }
    counts[e] = before;
  });
  parallel_for(stream, E + 1, [=] FORGE_LAMBDA(std::int64_t e) {
    std::int64_t before = 0;
    for (std::int64_t j = 0; j < e; ++j) before += counts[j];
    offsets[e] = before;
  });
  parallel_rows(stream, chunks, [=] FORGE_LAMBDA(std::int64_t chunk, Team team) {
    const std::int64_t begin = chunk * chunk_assignments, end = end_of(chunk, assignments), used = offsets[E];
    std::int32_t* next = workspace.row(chunk);
    team.each(end - begin, [=](std::int64_t i) {
      const std::int64_t q = begin + i;
      if (q >= used) order[q] = -1;
      if (all[q] < 0) place.row(q / k)[q % k] = -1;
    });
    each_assignment(team, E, all, begin, end, [=](std::int64_t q, std::int64_t e) {
      const std::int64_t to = offsets[e] + next[e]++;
      order[to] = static_cast<std::int32_t>(q);
      place.row(q / k)[q % k] = static_cast<std::int32_t>(to);
    });
  });
}

void moe_pad(Stream& stream, View<const std::int64_t, 1> offsets, View<const std::int32_t, 1> order,
             std::int64_t capacity, View<std::int32_t, 1> padded_order, View<std::int32_t, 2> place) {
  const std::int64_t k = place.columns();
  require(padded_order.rows() == (offsets.rows() - 1) * capacity, "moe_pad: shapes differ");
  parallel_for(stream, padded_order.rows(), [=] FORGE_LAMBDA(std::int64_t p) {
    const std::int64_t e = p / capacity, i = p % capacity;
    const bool there = i < offsets[e + 1] - offsets[e];
    const std::int32_t q = there ? order[offsets[e] + i] : -1;
    padded_order[p] = q;
    if (there) place.row(q / k)[q % k] = static_cast<std::int32_t>(p);
  });
}

void experts_of_blocks(Stream& stream, View<const std::int64_t, 1> counts, std::int64_t experts_in_all,
                       View<std::int32_t, 1> experts) {
  const std::int64_t blocks = counts.rows(), rows = experts.rows();
  parallel_rows(stream, blocks + 1, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    std::int64_t begin = 0;
    for (std::int64_t j = 0; j < b; ++j) begin += counts[j];
    const std::int64_t size = b < blocks ? counts[b] : rows - begin;
    const std::int32_t expert = b < blocks ? static_cast<std::int32_t>(b % experts_in_all) : -1;
    team.each(size, [=](std::int64_t i) { experts[begin + i] = expert; });
  });
}

// Bin scope · E + expert; an assignment stays when fewer than `capacity` of its bin come before it.
template <class A>
void capacity_drop(Stream& stream, CapacityOptions options, View<const std::int32_t, 2> experts,
                   View<const A, 2> weights, View<const std::int32_t, 1> scope, View<const std::int32_t, 1> positions,
                   CapacityWorkspace w, View<std::int32_t, 2> kept, View<std::int64_t, 1> dropped) {
  const std::int64_t E = options.experts, k = experts.columns(), assignments = experts.rows() * k;
  const bool by_probability = options.by == DropBy::probability;
  require(w.counts.rows() == options.scopes * E, "capacity_drop: shapes differ");
  parallel_for(stream, assignments, [=] FORGE_LAMBDA(std::int64_t q) {
    const std::int64_t r = q / k, c = q % k;
    const std::int32_t e = experts.row(r)[c];
    w.bins.row(r)[c] = e < 0 || scope[r] < 0 ? -1 : static_cast<std::int32_t>(scope[r] * E + e);
  });
  moe_sort(stream, w.bins, w.sort, w.counts, w.offsets, w.order, w.place);
  parallel_rows(stream, assignments, [=] FORGE_LAMBDA(std::int64_t q, Team team) {
    const std::int64_t r = q / k, c = q % k;
    const std::int32_t bin = w.bins.row(r)[c];
    bool stays = bin < 0 || w.counts[bin] <= options.capacity;
    if (!stays) {
      const std::int32_t* others = w.order.data + w.offsets[bin];
      const A mine = weights.row(r)[c];
      const std::int32_t position = positions[r];
      const auto before = team.template sum<std::int32_t>(w.counts[bin], [=](std::int64_t i) {
        const std::int64_t other = others[i], s = other / k;
        const A theirs = weights.row(s)[other % k];
        const bool earlier = positions[s] < position || (positions[s] == position && s < r);
        return by_probability && theirs != mine ? (theirs > mine ? 1 : 0) : (earlier ? 1 : 0);
      });
      stays = before < options.capacity;
    }
    if (team.leads()) kept.row(r)[c] = stays ? experts.row(r)[c] : -1;
  });
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const auto sum = team.template sum<std::int64_t>(assignments, [=](std::int64_t q) {
      return std::int64_t{experts.row(q / k)[q % k] >= 0 && kept.row(q / k)[q % k] < 0};
    });
    if (team.leads()) dropped[0] += sum;
  });
}

template void capacity_drop<double>(Stream&, CapacityOptions, View<const std::int32_t, 2>, View<const double, 2>,
                                    View<const std::int32_t, 1>, View<const std::int32_t, 1>, CapacityWorkspace,
                                    View<std::int32_t, 2>, View<std::int64_t, 1>);
template void capacity_drop<float>(Stream&, CapacityOptions, View<const std::int32_t, 2>, View<const float, 2>,
                                   View<const std::int32_t, 1>, View<const std::int32_t, 1>, CapacityWorkspace,
                                   View<std::int32_t, 2>, View<std::int64_t, 1>);

}  // namespace forge
