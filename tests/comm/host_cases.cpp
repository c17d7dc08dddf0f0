#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cases.hpp"

namespace forge::comm_cases {

void host_operations(Communicator& ranks) {
  const int rank = ranks.rank(), size = ranks.size();
  const double last = size - 1;
  std::vector<double> d = {static_cast<double>(rank), -static_cast<double>(rank), 0.5};
  ranks.sum_host(d);
  EXPECT_EQ(d, (std::vector<double>{last * size / 2, -last * size / 2, 0.5 * size}));
  d = {static_cast<double>(rank), rank == size / 2 ? std::nan("") : 1.0};
  ranks.max_host(d);
  EXPECT_EQ(d[0], last);
  EXPECT_TRUE(std::isnan(d[1])) << "a maximum loses a NaN";
  d = {static_cast<double>(rank) - 3};
  ranks.min_host(d);
  EXPECT_EQ(d[0], -3);
  const std::int64_t large = std::int64_t{1} << 60;  // more than a double holds
  std::vector<std::int64_t> n = {large + rank, rank};
  ranks.max_host(n);
  EXPECT_EQ(n, (std::vector<std::int64_t>{large + size - 1, size - 1}));
  n = {large + rank};
  ranks.min_host(n);
  EXPECT_EQ(n[0], large);
  n = {rank, 1};
  ranks.sum_host(n);
  EXPECT_EQ(n[1], size);
  for (int root = 0; root < size; ++root) {
    std::string text =
        rank == root ? std::string(static_cast<std::size_t>(1000 * root), 'x') + "end" : "something else";
    ranks.broadcast_host(text, root);
    EXPECT_EQ(text, std::string(static_cast<std::size_t>(1000 * root), 'x') + "end");
  }
  const auto texts = ranks.gather_host(std::string(static_cast<std::size_t>(rank), 'a'));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r)
    EXPECT_EQ(texts[static_cast<std::size_t>(r)], std::string(static_cast<std::size_t>(r), 'a'));
  // Of the first rank that has one; where none has, and where the last one alone has a long one.
  EXPECT_EQ(ranks.first_text("").rank, -1);
  const int late = size / 2;
  auto first = ranks.first_text(rank < late ? "" : "of rank " + std::to_string(rank));
  EXPECT_EQ(first.rank, late);
  EXPECT_EQ(first.text, "of rank " + std::to_string(late));
  first = ranks.first_text(rank == size - 1 ? std::string(100'000, 'z') : "");
  EXPECT_EQ(first.rank, size - 1);
  EXPECT_EQ(first.text, std::string(100'000, 'z'));
  // Numbers to one rank.
  for (int root = 0; root < size; ++root) {
    std::vector<std::int64_t> numbers;
    for (int r = 0; r < size && rank == root; ++r) numbers.push_back(large + r * r);
    EXPECT_EQ(ranks.collect_host(large + rank * rank, root), numbers);
  }
  // To one rank: any lengths, none too; what the rank throws comes after all texts.
  for (int root = 0; root < size; ++root) {
    const auto text_of = [](int r) {
      return std::string(static_cast<std::size_t>(70000 * (r % 3)), char('a' + r % 26));
    };
    int taken = 0;
    ranks.collect_host(text_of(rank), root, [&](const std::string& text) { EXPECT_EQ(text, text_of(taken++)); });
    EXPECT_EQ(taken, rank == root ? size : 0);
    bool thrown = false;
    try {
      ranks.collect_host("a", root, [](const std::string&) { throw Error("no"); });
    } catch (const Error&) {
      thrown = true;
    }
    EXPECT_EQ(thrown, rank == root);
  }
  ranks.barrier();
}

void host_traffic(Communicator& ranks) {
  const int size = ranks.size(), rank = ranks.rank();
  if (size == 1) return;
  const std::int64_t rounds = std::ceil(std::log2(size));
  const HostTraffic& sent = ranks.host_traffic();
  std::int64_t messages = sent.messages(), bytes = sent.bytes();
  const auto added = [&](auto f) {
    f();
    const std::pair now{sent.messages() - messages, sent.bytes() - bytes};
    messages = sent.messages(), bytes = sent.bytes();
    return now;
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(added([&] { ranks.barrier(); }), Pair(2 * rounds, 16 * rounds));
  EXPECT_EQ(added([&] { ranks.first_text(""); }), Pair(2 * rounds, 16 * rounds));
  const auto part = ranks.split(0, rank);
  EXPECT_EQ(added([] {}), Pair(2 * rounds, 16 * (size - 1)));
  EXPECT_EQ(added([&] { part->barrier(); }), Pair(2 * rounds, 16 * rounds)) << "of a part";
  EXPECT_EQ(added([&] { ranks.collect_host("abc", 0, [](const std::string&) {}); }),
            rank == 0 ? Pair(size - 1, 3 * (size - 1)) : Pair(1, 3));
  // Along a tree every message is sent by one and received by another: of n − 1 messages both ends count.
  for (const int root : {0, size - 1}) {
    std::string text = "1234567890";
    auto [n, b] = added([&] { ranks.broadcast_host(text, root); });
    std::vector<std::int64_t> sums{n, b};
    std::tie(n, b) = added([&] { ranks.collect_host(1, root); });
    sums.insert(sums.end(), {n, b});
    EXPECT_LE(n, rounds + 1);
    ranks.sum_host(sums);
    added([] {});
    EXPECT_EQ(sums[0], 4 * (size - 1));
    EXPECT_EQ(sums[1], 2 * (size - 1) * (10 + 8));
    EXPECT_EQ(sums[2], 2 * (size - 1));
    EXPECT_GE(sums[3], 16 * (size - 1));
  }
}

}  // namespace forge::comm_cases
