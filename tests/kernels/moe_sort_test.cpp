#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "fixture.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

// Distinct experts for each row, some assignments dropped: every `drop`th (0: none).
Values experts_of(int64_t rows, int64_t E, int64_t k, int64_t drop, std::uint64_t key = 1) {
  Values v;
  for (int64_t r = 0; r < rows; ++r) {
    const auto words = philox(key, static_cast<std::uint64_t>(r), 0);
    const auto first = static_cast<int64_t>(words[0] % static_cast<std::uint64_t>(E));
    for (int64_t c = 0; c < k; ++c) {
      const bool dropped = drop > 0 && (r * k + c) % drop == 0;
      v.push_back(dropped ? -1.0 : static_cast<double>((first + c) % E));
    }
  }
  return v;
}

struct Sort {
  int64_t R, E, k;
  Field<std::int32_t> experts, workspace, order, place;
  Field<std::int64_t> counts, offsets;

  Sort(int64_t rows, int64_t in_all, int64_t chosen, const Values& e)
      : R(rows),
        E(in_all),
        k(chosen),
        experts(R, k, e, 1),
        workspace(moe_sort_rows(R * k), E),
        order(1, R * k),
        place(R, k, 2),
        counts(1, E),
        offsets(1, E + 1) {}
  void run(Stream& s) {
    moe_sort(s, experts.view(), workspace.view(), counts.vector(), offsets.vector(), order.vector(), place.view());
  }
};

void check_sort(int64_t R, int64_t E, int64_t k, const Values& experts) {
  SCOPED_TRACE(testing::Message() << R << " rows, " << k << " of " << E);
  Sort sort(R, E, k, experts);
  Stream s(2);
  sort.run(s);
  std::vector<int64_t> sorted;
  for (int64_t q = 0; q < R * k; ++q)
    if (experts[q] >= 0) sorted.push_back(q);
  std::stable_sort(sorted.begin(), sorted.end(), [&](int64_t a, int64_t b) { return experts[a] < experts[b]; });
  const Values counts = sort.counts.read(s), offsets = sort.offsets.read(s), order = sort.order.read(s),
               place = sort.place.read(s);
  for (int64_t p = 0; p < R * k; ++p)
    ASSERT_EQ(order[p], p < static_cast<int64_t>(sorted.size()) ? static_cast<double>(sorted[p]) : -1.0) << p;
  Values inverse(experts.size(), -1.0);
  for (std::size_t p = 0; p < sorted.size(); ++p) inverse[sorted[p]] = static_cast<double>(p);
  EXPECT_EQ(place, inverse);
  double before = 0;
  for (int64_t e = 0; e < E; ++e) {
    EXPECT_EQ(counts[e], std::count(experts.begin(), experts.end(), static_cast<double>(e)));
    EXPECT_EQ(offsets[e], before);
    before += counts[e];
  }
  EXPECT_EQ(offsets[E], before);
}

TEST(MoeSort, IsTheStableOrder) {
  for (const int64_t R : {0, 1, 5, 127, 128, 300, 1000})
    for (const auto& [E, k] : {std::pair{1, 1}, {6, 2}, {64, 8}, {300, 3}})
      for (const int64_t drop : {0, 3}) check_sort(R, E, k, experts_of(R, E, k, drop));
  check_sort(700, 8, 1, Values(700, 5.0));    // all to one
  check_sort(700, 8, 2, Values(1400, -1.0));  // all dropped
}

TEST(MoeSort, any_number_of_threads_gives_the_same_order) {
  const Values experts = experts_of(3000, 48, 4, 7);
  expect_same_on_any_threads([&](Stream& s) {
    Sort sort(3000, 48, 4, experts);
    sort.run(s);
    s.synchronize();
    Values all = sort.order.read(s);
    append(all, sort.place.read(s));
    append(all, sort.counts.read(s));
    return all;
  });
}

// Rows of a round by arrival: (etp, ep) coordinate of the source, then expert; their stable order by expert.
void check_received(int ep, int etp, int64_t experts, int64_t here, const ReceivedRound& round, std::uint64_t key) {
  const int64_t sources = ep * etp, N = round.rows;
  Values counts;
  for (int64_t i = 0; i < sources * experts; ++i)
    counts.push_back(static_cast<double>((static_cast<std::uint64_t>(i) * 7919 + key) % 11 % 7));
  // The order by expert and source of all rounds, of which this one takes a window.
  std::vector<std::pair<int64_t, int64_t>> all;  // (arrival of the source, expert)
  for (int64_t e = 0; e < here; ++e)
    for (int64_t a = 0; a < sources; ++a) {
      const int64_t source = a % ep * etp + a / ep;
      const auto count = static_cast<int64_t>(counts[static_cast<std::size_t>(source * experts + round.first + e)]);
      all.insert(all.end(), static_cast<std::size_t>(count), {a, e});
    }
  const auto at = [&](int64_t i) { return all.begin() + std::min(i, static_cast<int64_t>(all.size())); };
  std::vector<std::pair<int64_t, int64_t>> arrived(at(round.begin), at(round.begin + N));
  std::stable_sort(arrived.begin(), arrived.end());
  const auto n = arrived.size();
  std::vector<std::size_t> sorted(n);
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::stable_sort(sorted.begin(), sorted.end(), [&](auto i, auto j) { return arrived[i].second < arrived[j].second; });
  Field<std::int64_t> table(sources, experts, counts), blocks(1, here * sources + 1), offsets(1, here + 1);
  Field<std::int32_t> order(1, N, Values(static_cast<std::size_t>(N), 77.0)), place(N, 1);
  Stream s;
  received_order(s, table.view(), round, blocks.vector(), offsets.vector(), order.vector(), place.view());
  const Values places = place.read(s), begins = offsets.read(s), orders = order.read(s);
  for (std::size_t p = 0; p < n; ++p) {
    ASSERT_EQ(orders[p], static_cast<double>(sorted[p])) << ep << " x " << etp << ", place " << p;
    ASSERT_EQ(places[sorted[p]], static_cast<double>(p));
  }
  for (std::size_t p = n; p < orders.size(); ++p) ASSERT_EQ(orders[p], 77.0);
  for (int64_t e = 0; e <= here; ++e)
    ASSERT_EQ(
        begins[static_cast<std::size_t>(e)],
        static_cast<double>(std::count_if(arrived.begin(), arrived.end(), [&](auto& a) { return a.second < e; })));
}

TEST(ReceivedOrder, IsByExpertAndThenByArrival) {
  for (const auto& [ep, etp] : {std::pair{1, 2}, {2, 1}, {2, 3}, {4, 2}, {16, 1}})
    for (const int64_t here : {1, 2, 5})
      for (int rank = 0; rank < ep; ++rank)
        for (const auto& [begin, rows] : {std::pair{0, 4000}, {0, 10}, {10, 10}, {20, 10}, {3000, 10}})
          check_received(ep, etp, ep * here, here, {ep, etp, rank * here, begin, rows}, 5);
}

// ---- capacity

template <class A>
struct Capacity {
  CapacityOptions o;
  int64_t R, k;
  Field<std::int32_t> experts, scope, positions, bins, place, order, sort, kept;
  Field<std::int64_t> counts, offsets, dropped;
  Field<A> weights;

  Capacity(CapacityOptions options, int64_t rows, int64_t chosen)
      : o(options),
        R(rows),
        k(chosen),
        experts(R, k, experts_of(R, o.experts, k, 11), 1),
        scope(1, R),
        positions(1, R),
        bins(R, k),
        place(R, k),
        order(1, R * k),
        sort(moe_sort_rows(R * k), o.experts * o.scopes),
        kept(R, k, 3),
        counts(1, o.experts * o.scopes),
        offsets(1, o.experts * o.scopes + 1),
        dropped(1, 1, Values{10}),
        weights(R, k, 2) {
    Values of, at, w = normal_values(R * k, 3);
    for (int64_t r = 0; r < R; ++r) {
      of.push_back(static_cast<double>(r % o.scopes));
      at.push_back(static_cast<double>((r * 37) % R / 2));  // not in the order of the rows; each twice
    }
    for (double& x : w) x = std::abs(std::round(4 * x)) / 4;  // with ties
    scope.write(of);
    positions.write(at);
    weights.write(w);
  }
  void run(Stream& s) {
    capacity_drop<A>(s, o, experts.view(), weights.view(), scope.vector(), positions.vector(),
                     {bins.view(), place.view(), order.vector(), counts.vector(), offsets.vector(), sort.view()},
                     kept.view(), dropped.vector());
  }
};

template <class A>
void check_capacity(CapacityOptions o, int64_t R, int64_t k) {
  Capacity<A> c(o, R, k);
  Stream s(2);
  c.run(s);
  const Values experts = c.experts.read(s), scope = c.scope.read(s), at = c.positions.read(s), w = c.weights.read(s);
  Values expected = experts;
  double dropped = 10;
  for (int64_t g = 0; g < o.scopes; ++g)
    for (int64_t e = 0; e < o.experts; ++e) {
      std::vector<int64_t> assignments;
      for (int64_t q = 0; q < R * k; ++q)
        if (experts[q] == static_cast<double>(e) && scope[q / k] == static_cast<double>(g)) assignments.push_back(q);
      std::stable_sort(assignments.begin(), assignments.end(),
                       [&](int64_t a, int64_t b) { return at[a / k] < at[b / k]; });
      if (o.by == DropBy::probability)
        std::stable_sort(assignments.begin(), assignments.end(), [&](int64_t a, int64_t b) { return w[a] > w[b]; });
      double in_scope = 0;
      for (int64_t q = 0; q < R * k; ++q) in_scope += experts[q] >= 0 && scope[q / k] == static_cast<double>(g);
      const double capacity = std::ceil(o.factor * in_scope / static_cast<double>(o.experts) - 1e-9);
      for (auto i = static_cast<std::size_t>(std::max(capacity, 1.0)); i < assignments.size(); ++i) {
        expected[assignments[i]] = -1;
        ++dropped;
      }
    }
  EXPECT_EQ(c.kept.read(s), expected);
  EXPECT_EQ(c.dropped.read(s)[0], dropped);
}

TEST(Capacity, KeepsTheFirstOrTheLargest) {
  for (const auto by : {DropBy::position, DropBy::probability})
    for (const double factor : {1e-9, 0.1, 0.3, 0.8, 1.0, 1000.0})
      for (const auto& [R, k, E, G] : {std::array{1, 1, 1, 1}, {90, 2, 6, 3}, {200, 3, 5, 1}, {64, 8, 64, 2}}) {
        SCOPED_TRACE(testing::Message() << R << " rows, " << k << " of " << E << ", " << G << " scopes, " << factor);
        check_capacity<double>({E, G, factor, by}, R, k);
        check_capacity<float>({E, G, factor, by}, R, k);
      }
}

TEST(Capacity, any_number_of_threads_drops_the_same) {
  expect_same_on_any_threads([&](Stream& s) {
    Capacity<float> c({7, 2, 0.45, DropBy::probability}, 300, 2);
    c.run(s);
    s.synchronize();
    Values all = c.kept.read(s);
    append(all, c.dropped.read(s));
    return all;
  });
}

// ---- permutation

template <class T>
struct Permutation {
  Sort sort;
  int64_t C, P;
  Field<T> x, rows, y, d_rows;
  Field<acc_t<T>> weights, d_weights, values;

  Permutation(int64_t R, int64_t E, int64_t k, int64_t columns)
      : sort(R, E, k, experts_of(R, E, k, 5)),
        C(columns),
        P(R * k),
        x(R, C, normal_values(R * C, 1), 3),
        rows(P, C, normal_values(P * C, 2), 1),
        y(R, C, normal_values(R * C, 3), 2),
        d_rows(P, C, 4),
        weights(R, k, normal_values(P, 5), 1),
        d_weights(R, k, 2),
        values(1, P) {
    Stream s;
    sort.run(s);
    s.synchronize();
  }
};

template <class T>
void check_permutation(int64_t R, int64_t E, int64_t k, int64_t C) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  SCOPED_TRACE(testing::Message() << R << " rows, " << k << " of " << E << ", " << C << " columns");
  Permutation<T> p(R, E, k, C);
  Stream s(2);
  const Values place = p.sort.place.read(s), order = p.sort.order.read(s), x = p.x.read(s), in = p.rows.read(s),
               w = p.weights.read(s), before = p.y.read(s);
  permute_rows<T>(s, p.x.view(), p.sort.order.vector(), k, p.d_rows.view());
  const Values permuted = p.d_rows.read(s);
  for (int64_t i = 0; i < p.P; ++i)
    for (int64_t j = 0; j < C; ++j)
      ASSERT_EQ(permuted[i * C + j], order[i] < 0 ? 0.0 : x[static_cast<int64_t>(order[i]) / k * C + j]);

  // All places at once, and in rounds of some.
  const auto expected = [&](bool weighted, bool add, int64_t first, int64_t end, const Values& old) {
    std::vector<N> sums;
    for (int64_t r = 0; r < R; ++r)
      for (int64_t j = 0; j < C; ++j) {
        N total = sum<N>(k, [&](int64_t c) {
          const auto at = static_cast<int64_t>(place[r * k + c]);
          if (at < first || at >= end) return N(0.0);
          return weighted ? N(w[r * k + c]) * N(in[at * C + j]) : N(in[at * C + j]);
        });
        sums.push_back(add ? N(old[r * C + j]) + total : total);
      }
    return sums;
  };
  for (const bool weighted : {false, true})
    for (const bool add : {false, true}) {
      const auto weights = weighted ? p.weights.view() : View<A, 2>();
      p.y.write(before);
      unpermute_rows<T>(s, p.rows.view(), p.sort.place.view(), 0, weights, add, p.y.view());
      expect_close<T>(p.y.read(s), expected(weighted, add, 0, p.P, before), "y");
      const int64_t cut = p.P / 3, end = p.P / 3 + p.P / 2;
      p.y.write(before);
      unpermute_rows<T>(s, p.rows.view().slice(cut, end), p.sort.place.view(), cut, weights, add, p.y.view());
      expect_close<T>(p.y.read(s), expected(weighted, add, cut, end, before), "a round");
    }

  if constexpr (std::is_same_v<T, double>) {
    // permute against its adjoint
    unpermute_rows<T>(s, p.rows.view(), p.sort.place.view(), 0, View<A, 2>(), false, p.y.view());
    expect_adjoint(dot(in, permuted), dot(p.y.read(s), x), norm(in) * norm(permuted), R * C * k);
  }

  permute_weights<A>(s, p.weights.view(), p.sort.order.vector(), p.values.vector());
  const Values values = p.values.read(s);
  for (int64_t i = 0; i < p.P; ++i) ASSERT_EQ(values[i], order[i] < 0 ? 0.0 : w[static_cast<std::size_t>(order[i])]);
  unpermute_weights<A>(s, p.values.vector(), p.sort.place.view(), p.d_weights.view());
  const Values back = p.d_weights.read(s);
  for (int64_t q = 0; q < p.P; ++q) ASSERT_EQ(back[q], place[q] < 0 ? 0.0 : w[q]);
}

TEST(Permutation, AgreesWithPlainLoops) {
  for (const auto& [R, E, k, C] :
       {std::array{1, 1, 1, 1}, {5, 6, 2, 17}, {33, 64, 8, 127}, {40, 4, 1, 300}, {90, 9, 9, 3}}) {
    check_permutation<double>(R, E, k, C);
    check_permutation<float>(R, E, k, C);
    check_permutation<bf16>(R, E, k, C);
  }
}

TEST(Permutation, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    Permutation<float> p(101, 16, 4, 67);
    permute_rows<float>(s, p.x.view(), p.sort.order.vector(), 4, p.d_rows.view());
    unpermute_rows<float>(s, p.d_rows.view(), p.sort.place.view(), 0, p.weights.view(), true, p.y.view());
    s.synchronize();
    Values all = p.y.read(s);
    append(all, p.d_rows.read(s));
    return all;
  });
}

}  // namespace
}  // namespace forge
