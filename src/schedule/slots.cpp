#include "schedule/slots.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace forge {

namespace {

struct Span {
  int begin = -1;
  int end = -1;
};

// Neighbours of a chunk's stage, for the tensors at its edges.
struct Edges {
  bool first, last;              // the pipeline's first or last stage
  int previous_here, next_here;  // chunk of the neighbouring stage on the same rank, -1 elsewhere
};

Edges edges_of(const Schedule& schedule, int rank, int chunk) {
  const int stage = schedule.stage_at(rank, chunk);
  Edges edges{stage == 0, stage == schedule.stages() - 1, -1, -1};
  const auto here = [&](int other) {
    const Place& place = schedule.places[static_cast<std::size_t>(other)];
    return place.rank == rank ? place.chunk : -1;
  };
  if (!edges.first) edges.previous_here = here(stage - 1);
  if (!edges.last) edges.next_here = here(stage + 1);
  return edges;
}

// Does `action` begin, or end, the lifetime of the tensor of (chunk, its microbatch)?
bool begins(const Action& action, Lifetime lifetime, int chunk, const Edges& edges) {
  const bool own = action.chunk == chunk;
  switch (lifetime) {
    case Lifetime::saved_for_input:
    case Lifetime::saved_for_weight:
    case Lifetime::output:
      return own && action.op == Op::forward;
    case Lifetime::rebuilt_for_input:
    case Lifetime::rebuilt_for_weight:
      return own && action.op == Op::recompute;
    case Lifetime::input:
      if (edges.previous_here >= 0) return action.op == Op::hand_forward && action.chunk == edges.previous_here;
      return own && action.op == (edges.first ? Op::forward : Op::post_recv_forward);
    case Lifetime::output_gradient:
      if (edges.next_here >= 0) return action.op == Op::hand_backward && action.chunk == edges.next_here;
      return own && (edges.last ? computes_input_gradient(action.op) : action.op == Op::post_recv_backward);
    case Lifetime::input_gradient:
      return own && computes_input_gradient(action.op);
    case Lifetime::weight_inputs:
      return own && action.op == Op::backward_input;
  }
  return false;
}

bool ends(const Action& action, Lifetime lifetime, int chunk, const Edges& edges) {
  if (action.chunk != chunk) return false;
  switch (lifetime) {
    case Lifetime::saved_for_input:
    case Lifetime::rebuilt_for_input:
      return computes_input_gradient(action.op);
    case Lifetime::saved_for_weight:
    case Lifetime::rebuilt_for_weight:
    case Lifetime::input:
    case Lifetime::output_gradient:
      return computes_weight_gradient(action.op);
    case Lifetime::output:
      if (edges.last) return action.op == Op::forward;
      return action.op == (edges.next_here >= 0 ? Op::hand_forward : Op::wait_send_forward);
    case Lifetime::input_gradient:
      if (edges.first) return computes_input_gradient(action.op);
      return action.op == (edges.previous_here >= 0 ? Op::hand_backward : Op::wait_send_backward);
    case Lifetime::weight_inputs:
      return action.op == Op::backward_weight;
  }
  return false;
}

// Lifetimes in list positions, by chunk * M + microbatch.
std::vector<Span> spans_of(const Schedule& schedule, int rank, Lifetime lifetime) {
  const auto& list = schedule.actions[static_cast<std::size_t>(rank)];
  std::vector<Span> spans(static_cast<std::size_t>(schedule.chunks_per_rank * schedule.microbatches));
  for (int chunk = 0; chunk < schedule.chunks_per_rank; ++chunk) {
    const Edges edges = edges_of(schedule, rank, chunk);
    for (int i = 0; i < static_cast<int>(list.size()); ++i) {
      const Action& action = list[static_cast<std::size_t>(i)];
      if (action.microbatch < 0 || action.microbatch >= schedule.microbatches) continue;
      Span& span = spans[static_cast<std::size_t>(chunk * schedule.microbatches + action.microbatch)];
      if (begins(action, lifetime, chunk, edges)) span.begin = i;
      if (ends(action, lifetime, chunk, edges)) span.end = i;
    }
  }
  return spans;
}

}  // namespace

int SlotTable::total() const {
  return std::accumulate(counts.begin(), counts.end(), 0);
}

SlotTable assign_slots(const Schedule& schedule, int rank, Lifetime lifetime, bool shared) {
  require(schedule.lowered, "schedule: slots are those of a lowered schedule");
  const std::vector<Span> spans = spans_of(schedule, rank, lifetime);
  const int pools = shared ? 1 : schedule.chunks_per_rank;
  SlotTable table;
  table.microbatches = schedule.microbatches;
  table.counts.assign(static_cast<std::size_t>(pools), 0);
  table.slots.assign(spans.size(), -1);

  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(spans.size()); ++i) {
    const Span& span = spans[static_cast<std::size_t>(i)];
    if (span.begin < 0) continue;
    require(span.end >= span.begin, "schedule: a tensor is never read after it is written");
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return spans[static_cast<std::size_t>(a)].begin < spans[static_cast<std::size_t>(b)].begin;
  });
  // free_from[pool][slot]: the list position after which the slot is free. Lowest free slot first: the count is the
  // largest number of overlapping lifetimes.
  std::vector<std::vector<int>> free_from(static_cast<std::size_t>(pools));
  for (const int i : order) {
    const Span& span = spans[static_cast<std::size_t>(i)];
    auto& pool = free_from[static_cast<std::size_t>(shared ? 0 : i / schedule.microbatches)];
    auto slot = std::find_if(pool.begin(), pool.end(), [&](int position) { return position < span.begin; });
    if (slot == pool.end()) slot = pool.insert(pool.end(), -1);
    *slot = span.end;
    table.slots[static_cast<std::size_t>(i)] = static_cast<int>(slot - pool.begin());
  }
  for (std::size_t pool = 0; pool < free_from.size(); ++pool)
    table.counts[pool] = static_cast<int>(free_from[pool].size());
  return table;
}

int microbatches_in_flight(const Schedule& schedule, int rank, bool until_weight) {
  int now = 0, most = 0;
  for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
    if (action.op == Op::forward) most = std::max(most, ++now);
    if (until_weight ? computes_weight_gradient(action.op) : computes_input_gradient(action.op)) --now;
  }
  return most;
}

}  // namespace forge
