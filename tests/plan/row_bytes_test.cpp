#include <gtest/gtest.h>

#include <string_view>

#include "nn/block.plan.hpp"

// Bytes of a block's kernels over rows against the least (docs/notes/kernels.md, "Kernels over rows"). That the lists
// are what runs: layout_run, in every test of a layout; their launches: tests/vgpu/steps.py.

namespace forge::test {
namespace {

constexpr Microbatch microbatch{2, 64};

// In numbers of bf16 a row.
struct RowCost {
  double numbers = 0;
  std::int64_t launches = 0;
};
RowCost operator+(const RowCost& a, const RowCost& b) {
  return {a.numbers + b.numbers, a.launches + b.launches};
}

// Kernels that go over a few numbers a row, of the router and the order of its choices.
bool is_narrow(const RowKernel& kernel) {
  return kernel.columns == 1 || kernel.name.starts_with("router") || kernel.name == "moe_sort" ||
         kernel.name == "add_counts";
}

RowCost rows_of(const ModelDeck& deck, Recompute policy, Pass pass, bool recompute = false) {
  BufferContext context{resolve_model(deck), microbatch, bf16_precision, policy, 1};
  context.grouped = true;
  Segments list(context);
  list_block(list, 0, pass, recompute);
  RowCost cost;
  for (const RowKernel& kernel : list.all<RowKernel>()) {
    cost.launches += kernel.launches;
    if (!is_narrow(kernel))
      cost.numbers +=
          static_cast<double>(kernel.read_bytes + kernel.written_bytes) / (2 * static_cast<double>(microbatch.rows()));
  }
  return cost;
}

// Of a block that runs once forward and once backward, with what backward recomputes.
RowCost rows_of_block(const ModelDeck& deck, Recompute policy) {
  return rows_of(deck, policy, Pass::forward) + rows_of(deck, policy, Pass::forward, true) +
         rows_of(deck, policy, Pass::backward_input) + rows_of(deck, policy, Pass::backward_weight);
}

// Of kernels that stand between products and attention, each of which reads and writes its matrices once. Rows to
// experts are read once and written for each choice.
double least_numbers(const ModelDeck& deck, Recompute policy) {
  const ModelSpec s = resolve_model(deck);
  const auto C = static_cast<double>(s.C()), F = static_cast<double>(s.F()),
             Q = static_cast<double>(s.q_columns() + s.kv_columns()), O = static_cast<double>(s.o_columns());
  const bool experts = s.is_moe(0), drops = policy != Recompute::none;
  const auto k = static_cast<double>(experts ? s.options.experts_per_token : 1);
  const double Fe = experts ? k * static_cast<double>(s.options.expert_ffn) : F;
  // The sum behind the feed-forward part and the next norm; rotation; the sum behind attention, norm 2; activation.
  const double forward = (experts ? k * C + 3 * C : 4 * C) + 2 * Q + 4 * C + (experts ? (1 + k) * C : 0) + 3 * Fe;
  const double backward =
      (experts ? (1 + k) * C + (k + 1) * C : 0) + (5 + drops) * Fe + 4 * C + 2 * O + (deck.qk_norm ? 3 : 2) * Q + 4 * C;
  const double again = policy == Recompute::full        ? 2 * C + 2 * Q + 4 * C + (experts ? (1 + k) * C : 0)
                       : policy == Recompute::selective ? 2 * C
                                                        : 0;
  return forward + backward + again;
}

ModelDeck dense() {
  ModelDeck m;
  m.layers = 1;
  m.width = 4096;
  m.heads = 32;
  m.kv_heads = 8;
  m.head_dim = 128;
  m.ffn = 14336;
  m.vocabulary = 1024;
  return m;
}
ModelDeck with_experts() {
  ModelDeck m = dense();
  m.width = 2048;
  m.kv_heads = 4;
  m.qk_norm = true;
  m.experts = 128;
  m.experts_per_token = 8;
  m.expert_ffn = 768;
  return m;
}

void expect_rows(const ModelDeck& deck, Recompute policy, double more, std::int64_t launches) {
  const RowCost cost = rows_of_block(deck, policy);
  const double least = least_numbers(deck, policy);
  EXPECT_LE(cost.numbers, more * least) << cost.numbers / least << " times the least";
  EXPECT_GE(cost.numbers, least);
  EXPECT_LE(cost.launches, launches);
  testing::Test::RecordProperty("times_the_least", std::to_string(cost.numbers / least));
}

TEST(RowBytes, OfADenseBlock) {
  expect_rows(dense(), Recompute::none, 1.02, 12);
  expect_rows(dense(), Recompute::selective, 1.06, 14);
  expect_rows(dense(), Recompute::full, 1.02, 15);
}

TEST(RowBytes, OfQkNorm) {
  ModelDeck deck = dense();
  deck.qk_norm = true;
  expect_rows(deck, Recompute::none, 1.02, 15);
}

TEST(RowBytes, OfABlockWithExperts) {
  expect_rows(with_experts(), Recompute::none, 1.2, 40);
  expect_rows(with_experts(), Recompute::full, 1.22, 50);
}

}  // namespace
}  // namespace forge::test
