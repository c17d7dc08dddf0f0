#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {

void node_choices(Stream& stream, View<const std::int32_t, 2> experts, std::int64_t node_experts,
                  View<std::int32_t, 2> nodes) {
  note_rows(stream, "node_choices", bytes_in(experts), bytes_in(nodes));
  const std::int64_t k = experts.columns(), count = nodes.columns();
  parallel_for(stream, nodes.rows() * count, [=] FORGE_LAMBDA(std::int64_t i) {
    const std::int64_t r = quotient(i, count), node = i - r * count;
    bool has = false;
    for (std::int64_t c = 0; c < k; ++c) {
      const std::int64_t e = experts.row(r)[c] - node * node_experts;
      has = has || (experts.row(r)[c] >= 0 && e >= 0 && e < node_experts);
    }
    nodes.row(r)[node] = has ? static_cast<std::int32_t>(node) : -1;
  });
}

void record_entries(Stream& stream, View<const std::int32_t, 2> experts, View<const std::int32_t, 2> record,
                    std::int64_t node_experts, View<std::int32_t, 2> entries, View<std::int32_t, 1> order,
                    View<std::int32_t, 2> place) {
  note_rows(stream, "record_entries", bytes_in(experts, record), bytes_in(place));
  const std::int64_t k = experts.columns(), count = record.columns(), width = entries.columns();
  require(order.rows() == entries.size() && entries.dense(), "record_entries: shapes differ");
  parallel_for(stream, experts.rows() * count, [=] FORGE_LAMBDA(std::int64_t i) {
    const std::int64_t r = quotient(i, count), node = i - r * count, at = record.row(r)[node];
    const std::int32_t* chosen = experts.row(r);
    const std::int64_t first = node * node_experts;
    const auto here = [=](std::int32_t e) { return e >= first && e < first + node_experts; };
    std::int64_t taken = 0;
    for (std::int64_t c = 0; c < k; ++c) {
      if (node == 0 && chosen[c] < 0) place.row(r)[c] = -1;
      if (!here(chosen[c])) continue;
      std::int64_t before = 0;
      for (std::int64_t d = 0; d < k; ++d) before += here(chosen[d]) && chosen[d] < chosen[c];
      const std::int64_t p = at * width + before;
      entries.data[p] = static_cast<std::int32_t>(chosen[c] - first);
      order[p] = static_cast<std::int32_t>(r * k + c);
      place.row(r)[c] = static_cast<std::int32_t>(p);
      ++taken;
    }
    for (std::int64_t j = taken; at >= 0 && j < width; ++j) entries.data[at * width + j] = order[at * width + j] = -1;
  });
}

void node_counts(Stream& stream, View<const std::int64_t, 2> counts, std::int64_t first,
                 View<std::int64_t, 2> of_node) {
  note_rows(stream, "node_counts", 0, bytes_in(of_node));
  const std::int64_t ranks = of_node.rows(), experts = of_node.columns(), sources = counts.rows();
  parallel_for(stream, ranks * experts, [=] FORGE_LAMBDA(std::int64_t i) {
    const std::int64_t rank = quotient(i, experts), e = i - rank * experts;
    std::int64_t sum = 0;
    for (std::int64_t source = rank; source < sources; source += ranks) sum += counts.row(source)[first + e];
    of_node.row(rank)[e] = sum;
  });
}

template <class T>
void sum_entries(Stream& stream, View<const T, 2> rows, View<const std::int32_t, 2> place, std::int64_t first, bool add,
                 View<acc_t<T>, 2> sums) {
  using A = acc_t<T>;
  note_rows(stream, "sum_entries", bytes_in(rows) + (add ? bytes_in(sums) : 0), bytes_in(sums));
  const std::int64_t n = sums.columns(), k = place.columns(), end = first + rows.rows();
  parallel_rows(stream, sums.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int32_t* at = place.row(r);
    A* to = sums.row(r);
    team.each(n, [=](std::int64_t j) {
      A sum = add ? to[j] : A(0);
      for (std::int64_t c = 0; c < k; ++c)
        if (at[c] >= first && at[c] < end) sum += A(rows.row(at[c] - first)[j]);
      to[j] = sum;
    });
  });
}

namespace {

// Rows of codes and scales, as so many words.
template <class Word>
void permute_words(Stream& stream, View<const std::uint8_t, 2> x, View<const std::int32_t, 1> order,
                   std::int64_t chosen, View<std::uint8_t, 2> rows) {
  const std::int64_t n = x.columns() / static_cast<std::int64_t>(sizeof(Word));
  const auto* from = reinterpret_cast<const Word*>(x.data);
  auto* to = reinterpret_cast<Word*>(rows.data);
  parallel_rows(stream, rows.rows(), row_width<Word>(n), [=] FORGE_LAMBDA(std::int64_t p, Team team) {
    const std::int64_t r = quotient(order[p], chosen);
    team.each(n, [=](std::int64_t j) { to[p * n + j] = from[r * n + j]; });
  });
}

}  // namespace

void permute_codes(Stream& stream, View<const std::uint8_t, 2> x, View<const std::int32_t, 1> order,
                   std::int64_t chosen, View<std::uint8_t, 2> rows) {
  note_rows(stream, "permute_codes", bytes_in(rows), bytes_in(rows));
  require(x.dense() && rows.dense() && x.columns() == rows.columns(), "permute_codes: shapes differ");
  if (x.columns() % 4 == 0)
    permute_words<std::uint32_t>(stream, x, order, chosen, rows);
  else
    permute_words<std::uint8_t>(stream, x, order, chosen, rows);
}

FORGE_INSTANTIATE_FUNCTION(sum_entries);

}  // namespace forge
