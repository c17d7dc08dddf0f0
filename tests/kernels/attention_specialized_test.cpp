#include <gtest/gtest.h>

#include <string>

#include "attention_checks.hpp"
#include "kernels/attention/attention_specialized_calls.hpp"

// Attention by warpgroups on a GPU that has them, against the reference. Each case is one that these kernels take,
// which is checked, too: others go to products of warps without a word.

namespace forge::reference {

namespace {

using Specialized = Computed<bf16, AttentionKernel::tensor_cores>;

bool takes(Sizes n) {
  n.kernel = Specialized::kernel, n.aligned = true;
  const Case<bf16> c(n);
  return specialized_takes(c.shape(), c.q.view(), c.k.view(), c.v.view(), c.u.view());
}

void check_taken(const Sizes& n) {
  SCOPED_TRACE(text(n));
  ASSERT_TRUE(takes(n));
  check<Specialized>(n);
}

class AttentionByTasks : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(device_info().features) != "sm_90") GTEST_SKIP() << "no products of warpgroups";
  }
};

// From less than a tile to several turns of every ring of places; heads of keys with one and with several of queries.
TEST_F(AttentionByTasks, SequencesAndHeads) {
  for (const std::int64_t T : {1, 64, 65, 129})
    check_taken({.B = 2, .Tq = T, .Tk = T, .H = 2, .K = 2, .D = 64, .Dv = 64});
  check_taken({.Tq = 560, .Tk = 560, .H = 2, .K = 1, .D = 64, .Dv = 64});
  for (const std::int64_t T : {63, 260}) check_taken({.Tq = T, .Tk = T, .H = 3, .K = 1, .D = 128, .Dv = 128});
}

// As many columns as each kernel has room for, and fewer; values with fewer columns than keys.
TEST_F(AttentionByTasks, HeadSizes) {
  for (const auto& [D, Dv] : {std::pair{8, 8}, {80, 80}, {96, 64}, {136, 128}, {192, 16}})
    check_taken({.Tq = 63, .Tk = 63, .H = 2, .K = 1, .D = D, .Dv = Dv});
  check_taken({.Tq = 280, .Tk = 280, .H = 2, .K = 1, .D = 192, .Dv = 128, .window = 150});
}

TEST_F(AttentionByTasks, QueriesBehindKeys) {
  for (const std::int64_t Tq : {1, 70})
    check_taken({.Tq = Tq, .Tk = 450, .H = 2, .K = 1, .D = 64, .Dv = 64, .first_position = 450 - Tq});
}

TEST_F(AttentionByTasks, Window) {
  for (const std::int64_t window : {1, 129})
    check_taken({.Tq = 400, .Tk = 400, .H = 1, .K = 1, .D = 64, .Dv = 64, .window = window});
  check_taken({.Tq = 300, .Tk = 300, .H = 1, .K = 1, .D = 128, .Dv = 128, .window = 100});
}

TEST_F(AttentionByTasks, Documents) {
  check_taken({.B = 2, .Tq = 270, .Tk = 270, .H = 2, .K = 1, .D = 64, .Dv = 64, .documents = true});
  check_taken({.Tq = 260, .Tk = 260, .H = 2, .K = 1, .D = 128, .Dv = 128, .window = 20, .documents = true});
}

// Whatever the order of blocks and warps.
TEST_F(AttentionByTasks, TheSameBitsInEveryRun) {
  std::vector<std::vector<double>> first;
  for (int run = 0; run < 2; ++run) {
    Sizes n{.B = 2, .Tq = 200, .Tk = 200, .H = 2, .K = 1, .D = 64, .Dv = 64, .window = 150};
    n.kernel = Specialized::kernel, n.aligned = true;
    Case<bf16> c(n);
    const std::vector<std::vector<double>> now = results_of(c);
    if (first.empty()) first = now;
    EXPECT_EQ(now, first);
  }
}

// Tiles that no query sees, whole blocks without one, blocks of keys that nobody reads, and no keys.
TEST_F(AttentionByTasks, NothingToSee) {
  check_taken({.Tq = 130, .Tk = 0, .H = 2, .K = 1, .D = 64, .Dv = 64});
  check_taken({.Tq = 300, .Tk = 40, .H = 2, .K = 1, .D = 64, .Dv = 64, .window = 30});
  check_taken({.Tq = 40, .Tk = 400, .H = 2, .K = 1, .D = 64, .Dv = 64});
}

TEST_F(AttentionByTasks, LeavesTheRestToProductsOfWarps) {
  EXPECT_FALSE(takes({.Tq = 8, .Tk = 8, .D = 36, .Dv = 36}));
  EXPECT_FALSE(takes({.Tq = 8, .Tk = 8, .D = 64, .Dv = 136}));
  EXPECT_FALSE(takes({.Tq = 8, .Tk = 8, .D = 200, .Dv = 128}));
  EXPECT_FALSE(takes({.Tq = 8, .Tk = 8, .D = 64, .Dv = 64, .dropout = 0.1}));
  EXPECT_FALSE(takes({.Tq = 8, .Tk = 131073, .D = 64, .Dv = 64}));
  check<Specialized>({.Tq = 70, .Tk = 70, .H = 2, .K = 1, .D = 200, .Dv = 80});
  check<Computed<bf16, AttentionKernel::tensor_cores, false>>({.Tq = 70, .Tk = 70, .H = 2, .K = 1, .D = 64, .Dv = 64});
}

}  // namespace

}  // namespace forge::reference
