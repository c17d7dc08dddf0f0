#include "optim/rotation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "../device_values.hpp"
#include "config/optimizer_table.hpp"
#include "core/normal.hpp"
#include "layout/whole_matrices.hpp"

namespace forge::test {
namespace {

std::vector<double> normal_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t key) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(normal(key, static_cast<std::uint64_t>(i)));
  return values;
}

double dot(const std::vector<double>& a, const std::vector<double>& b, std::int64_t k, std::int64_t i, std::int64_t j) {
  double sum = 0;
  for (std::int64_t n = 0; n < k; ++n)
    sum += a[static_cast<std::size_t>(i * k + n)] * b[static_cast<std::size_t>(j * k + n)];
  return sum;
}

template <class A>
std::vector<double> made_orthonormal(const std::vector<double>& a, std::int64_t k) {
  Stream stream(2);
  DeviceArray<A, 2> rows(stream, {{k, k}}, std::vector<A>(a.begin(), a.end())), result(stream, {{k, k}});
  DeviceArray<double, 1> reflections(stream, {{2 * k + 1}});
  orthonormal_rows<A>(stream, rows, result, reflections);
  std::vector<double> values;
  for (const A v : result.get()) values.push_back(static_cast<double>(v));
  return values;
}

// Rows of q are orthonormal; row i of `a` has nothing of those behind q_i, and a positive part of it: only one q does.
template <class A>
void expect_orthonormal(const std::vector<double>& a, std::int64_t k, double bound) {
  const std::vector<double> q = made_orthonormal<A>(a, k);
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < k; ++j) {
      ASSERT_NEAR(dot(q, q, k, i, j), i == j ? 1 : 0, bound) << i << ", " << j << " of " << k;
      const double part = dot(a, q, k, i, j), length = std::sqrt(dot(a, a, k, i, i));
      ASSERT_NEAR(j > i ? part : 0, 0, bound * length) << i << ", " << j << " of " << k;
      ASSERT_TRUE(j != i || part > 0) << i << " of " << k;
    }
}

TEST(OrthonormalRows, AreThoseOfAPositiveDiagonal) {
  for (const std::int64_t k : {1, 2, 7, 40, 97}) {
    const std::vector<double> a = normal_matrix(k, k, 3);
    expect_orthonormal<double>(a, k, 1e-14 * static_cast<double>(k));
    std::vector<double> rounded;
    for (const double v : a) rounded.push_back(static_cast<double>(static_cast<float>(v)));
    expect_orthonormal<float>(rounded, k, 1e-6 * static_cast<double>(k));
  }
}

TEST(OrthonormalRows, OfZerosAreTheIdentity) {
  const std::vector<double> q = made_orthonormal<double>(std::vector<double>(9, 0), 3);
  EXPECT_EQ(q, (std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
}

class Products : public OperationTape {
 public:
  void product(const Product& p) override { seen.push_back(p); }
  void scales(Stream&, View<const float, 1>) override {}
  void rows(const Stream&, std::string_view, std::int64_t, std::int64_t) override {}
  void experts(const ExpertProduct&) override {}
  void attention(Stream&, const AttentionShape&, const AttentionMask&, const AttentionProduct&) override {}
  std::vector<Product> seen;
};

// A matrix and its owner's memory.
struct Owner {
  OptimizerDeck deck;
  MatrixState kept_state;
  RotatedState state;
  Stream stream{2};
  Buffer workspace{std::size_t{1} << 20};
  Gemm gemm{workspace.data(), workspace.bytes()};
  Rotation<double> rotation{gemm};
  DeviceArray<double, 1> kept, x, gradient, partial, rotated, square, basis, reflections;
  Buffer scalars{sizeof(StepScalars)};

  Owner(std::int64_t rows, std::int64_t columns, std::int64_t largest_side)
      : deck(deck_of(largest_side)),
        kept_state(matrix_state(deck, rows, columns)),
        state(kept_state),
        kept(array(kept_state.elements)),
        x(array(rows * columns)),
        gradient(array(rows * columns)),
        partial(array(rows * columns)),
        rotated(array(rows * columns)),
        square(array(state.longest() * state.longest())),
        basis(array(state.longest() * state.longest())),
        reflections(array(2 * state.longest() + 1)) {}

  void update(std::int64_t number, bool finite) {
    const StepScalars host{0, 0, 0, 1, finite ? 1.0 : 0.0};
    copy_to_device(stream, scalars.data(), &host, sizeof host);
    const View<StepScalars, 1> view(reinterpret_cast<StepScalars*>(scalars.data()), {{1}});
    x.set(normal_matrix(state.rows, state.columns, static_cast<std::uint64_t>(number)));
    rotation(stream, deck, {number, 1, view}, state, kept, x, {gradient, partial, rotated, square, basis, reflections});
    stream.synchronize();
  }
  std::vector<double> all_kept() const { return kept.get(); }

 private:
  static OptimizerDeck deck_of(std::int64_t largest_side) {
    OptimizerDeck deck;
    deck.name = OptimizerName::soap;
    deck.soap_largest_side = largest_side;
    deck.soap_basis_every_steps = 1;
    return deck;
  }
  DeviceArray<double, 1> array(std::int64_t n) { return {stream, {{std::max<std::int64_t>(n, 1)}}}; }
};

TEST(Rotation, RunsThePlannedProducts) {
  BufferContext context;
  context.precision = fp64_precision;
  for (const std::int64_t largest : {3, 8, 12}) {
    Owner owner(8, 12, largest);
    Products record;
    owner.rotation.set_tape(&record);
    owner.update(1, true);
    MatrixStack stack;
    stack.state = owner.kept_state;
    stack.rotates = true;
    stack.matrices.resize(1);
    MatrixRound round;
    round.stacks = {stack};
    Segments planned(context);
    list_round(planned, round);
    EXPECT_EQ(record.seen, planned.all<Product>()) << largest;
    EXPECT_DOUBLE_EQ(planned.flops(), rotated_flops(owner.state));
  }
}

TEST(Rotation, KeepsAllOfAStepThatIsNotFinite) {
  Owner owner(6, 9, 100);
  const std::vector<double> none = owner.all_kept();
  owner.update(1, false);
  EXPECT_EQ(owner.all_kept(), none);
  for (const std::int64_t number : {1, 2, 3}) owner.update(number, true);
  const std::vector<double> before = owner.all_kept();
  owner.update(4, false);
  EXPECT_EQ(owner.all_kept(), before);
  owner.update(4, true);
  EXPECT_NE(owner.all_kept(), before);
}

// The first update makes bases and changes no weight.
TEST(Rotation, FirstUpdateIsZero) {
  Owner owner(6, 9, 100);
  owner.update(1, true);
  EXPECT_EQ(owner.x.get(), std::vector<double>(54, 0));
  owner.update(2, true);
  EXPECT_NE(owner.x.get(), std::vector<double>(54, 0));
}

}  // namespace
}  // namespace forge::test
