#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "fixture.hpp"
#include "kernels/experts/expert_kernels.hpp"

// Rows in two hops: records of (row, node), their entries, and what comes of them.

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

// Each row has three of 12 experts on three nodes, some dropped; of some rows all.
constexpr int64_t rows = 70, chosen = 3, experts = 12, nodes = 3, here = experts / nodes, entries = 3;
int64_t expert_of(int64_t r, int64_t c) {
  if (r % 11 == 4 || (r * chosen + c) % 7 == 2) return -1;
  return (5 * r + c * (1 + r % 5)) % experts;
}
Values all_choices() {
  Values v;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < chosen; ++c) v.push_back(static_cast<double>(expert_of(r, c)));
  return v;
}

TEST(NodeRecords, HaveTheExpertsOfARowOnANode) {
  Stream s;
  Field<std::int32_t> choices(rows, chosen, all_choices(), 1), row_nodes(rows, nodes),
      sort(moe_sort_rows(rows * nodes), nodes), records(1, rows * nodes), record_place(rows, nodes),
      found(rows * nodes, entries), order(1, rows * nodes * entries), place(rows, chosen, 2);
  Field<std::int64_t> counts(1, nodes), offsets(1, nodes + 1);
  node_choices(s, choices.view(), here, row_nodes.view());
  moe_sort(s, row_nodes.view(), sort.view(), counts.vector(), offsets.vector(), records.vector(), record_place.view());
  record_entries(s, choices.view(), record_place.view(), here, found.view(), order.vector(), place.view());
  const Values got = found.read(s), orders = order.read(s), places = place.read(s);
  int64_t record = 0;
  for (int64_t node = 0; node < nodes; ++node)
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<std::pair<int64_t, int64_t>> there;  // expert, choice
      for (int64_t c = 0; c < chosen; ++c) {
        const int64_t e = expert_of(r, c);
        if (e >= 0 && e / here == node) there.emplace_back(e, c);
        if (e < 0) {
          EXPECT_EQ(places[r * chosen + c], -1);
        }
      }
      if (there.empty()) continue;
      std::sort(there.begin(), there.end());
      for (int64_t j = 0; j < entries; ++j) {
        const bool used = j < std::ssize(there);
        const int64_t at = record * entries + j;
        EXPECT_EQ(got[at], used ? there[j].first - node * here : -1) << "row " << r << ", node " << node;
        EXPECT_EQ(orders[at], used ? r * chosen + there[j].second : -1);
        if (used) {
          EXPECT_EQ(places[r * chosen + there[j].second], at);
        }
      }
      ++record;
    }
  EXPECT_EQ(offsets.read(s).back(), record);
  EXPECT_GT(record, rows);
}

TEST(NodeRecords, CountsAreSummedOverNodes) {
  Stream s;
  Values counts;
  for (int64_t i = 0; i < 6 * 15; ++i) counts.push_back(static_cast<double>(i * 7 % 13));
  Field<std::int64_t> all(6, 15, counts), of_node(2, 4);  // three nodes of two ranks, 12 experts and 3 nodes
  node_counts(s, all.view(), 4, of_node.view());
  const Values got = of_node.read(s);
  for (int64_t rank = 0; rank < 2; ++rank)
    for (int64_t e = 0; e < 4; ++e) {
      double sum = 0;
      for (int64_t n = 0; n < 3; ++n) sum += counts[(2 * n + rank) * 15 + 4 + e];
      EXPECT_EQ(got[rank * 4 + e], sum);
    }
}

// In two windows of places, one added to the other: each row's rows once, in the wider type.
template <class T>
void check_sums() {
  Stream s;
  const int64_t n = 37, width = 21;
  Values place, x = normal_values(60 * width, 3);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < 2; ++c) place.push_back(static_cast<double>((r + c) % 5 == 0 ? -1 : (r * 2 + c) % 60));
  Field<T> terms(60, width, x);
  Field<std::int32_t> at(n, 2, place);
  Field<acc_t<T>> sums(n, width, normal_values(n * width, 4));
  const View<const T, 2> all = terms.view();
  sum_entries<T>(s, all.slice(0, 25), at.view(), 0, false, sums.view());
  sum_entries<T>(s, all.slice(25, 60), at.view(), 25, true, sums.view());
  const Values rounded = terms.read(s), got = sums.read(s);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t j = 0; j < width; ++j) {
      double sum = 0;
      for (int64_t c = 0; c < 2; ++c)
        if (const auto p = static_cast<int64_t>(place[r * 2 + c]); p >= 0) sum += rounded[p * width + j];
      EXPECT_EQ(got[r * width + j], static_cast<double>(acc_t<T>(sum))) << r << ", " << j;
    }
}
TEST(NodeRecords, SumsAreOfAllWindows) {
  check_sums<double>();
  check_sums<float>();
  check_sums<bf16>();
}

TEST(NodeRecords, CodesMoveWhole) {
  for (const int64_t bytes : {20, 7}) {
    Stream s;
    Values x;
    for (int64_t i = 0; i < 9 * bytes; ++i) x.push_back(static_cast<double>(i * 37 % 256));
    Field<std::uint8_t> from(9, bytes, x), to(5, bytes);
    Field<std::int32_t> order(1, 5, {4, 17, 0, 9, 4});
    permute_codes(s, from.view(), order.vector(), 2, to.view());
    const Values got = to.read(s);
    constexpr std::array<int64_t, 5> row{2, 8, 0, 4, 2};
    for (std::size_t p = 0; p < row.size(); ++p)
      for (int64_t j = 0; j < bytes; ++j) EXPECT_EQ(got[static_cast<int64_t>(p) * bytes + j], x[row[p] * bytes + j]);
  }
}

}  // namespace
}  // namespace forge
