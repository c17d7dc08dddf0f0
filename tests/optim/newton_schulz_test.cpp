#include "optim/newton_schulz.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string_view>

#include "../device_values.hpp"
#include "core/normal.hpp"

namespace forge::test {
namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size(), 0));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < b.size(); ++k)
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}

// torch.optim.Muon's _zeropower_via_newtonschulz from its documentation, which transposes what is taller than wide.
Matrix orthogonalised(Matrix x) {
  const bool tall = x.size() > x[0].size();
  if (tall) x = transposed(x);
  double squares = 0;
  for (const auto& row : x) squares = std::inner_product(row.begin(), row.end(), row.begin(), squares);
  for (auto& row : x)
    for (double& value : row) value /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const Matrix gram = product(x, transposed(x)), square = product(gram, gram);
    Matrix polynomial = gram;
    for (std::size_t i = 0; i < gram.size(); ++i)
      for (std::size_t j = 0; j < gram.size(); ++j)
        polynomial[i][j] = -4.7750 * gram[i][j] + 2.0315 * square[i][j] + (i == j ? 3.4445 : 0);
    x = product(polynomial, x);
  }
  return tall ? transposed(x) : x;
}

template <class T>
std::vector<double> stack_of(std::int64_t n, double scale) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i)
    values.push_back(static_cast<double>(T(scale * normal(5, static_cast<std::uint64_t>(i)))));
  return values;
}

// B matrices (m, n) in device memory, with what the iteration needs besides.
template <class T>
struct Stack {
  std::int64_t B, m, n;
  Stream stream{2};
  Buffer workspace{std::size_t{1} << 20};
  Gemm gemm{workspace.data(), workspace.bytes()};
  DeviceArray<T, 1> x, y{stream, {{B * m * n}}}, gram{stream, {{B * m * n}}}, polynomial{stream, {{B * m * n}}};
  DeviceArray<double, 1> squares{stream, {{B * m}}}, norms{stream, {{B}}};

  Stack(std::int64_t matrices, std::int64_t rows, std::int64_t columns, const std::vector<double>& values)
      : B(matrices), m(rows), n(columns), x(stream, {{B * m * n}}, std::vector<T>(values.begin(), values.end())) {}
  std::vector<T> orthogonalised(OperationTape* tape = nullptr) {
    NewtonSchulz<T> iteration(gemm, B);
    iteration.set_tape(tape);
    return values_of(stream, iteration(stream, {{}, {}, x, y, gram, polynomial, squares, norms, {}}, B, m, n));
  }
};

// Against the formula, each matrix for itself.
template <class T>
void expect_formula(std::int64_t B, std::int64_t m, std::int64_t n, double scale, double bound) {
  SCOPED_TRACE(std::to_string(B) + " matrices " + std::to_string(m) + " x " + std::to_string(n));
  const std::vector<double> values = stack_of<T>(B * m * n, scale);
  const std::vector<T> got = Stack<T>(B, m, n, values).orthogonalised();
  for (std::int64_t b = 0; b < B; ++b) {
    Matrix matrix;
    for (std::int64_t i = 0; i < m; ++i)
      matrix.emplace_back(values.begin() + (b * m + i) * n, values.begin() + (b * m + i + 1) * n);
    const Matrix expected = orthogonalised(matrix);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        ASSERT_NEAR(static_cast<double>(got[static_cast<std::size_t>((b * m + i) * n + j)]),
                    expected[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)], bound)
            << i << ", " << j << " of " << b;
  }
}

// What runs is what the plan lists.
class Record : public OperationTape {
 public:
  void product(const Product& p) override { products.push_back(p); }
  void scales(Stream&, View<const float, 1>) override {}
  void rows(const Stream&, std::string_view, std::int64_t, std::int64_t) override {}
  void experts(const ExpertProduct& p) override { stacks.push_back(p); }
  void attention(Stream&, const AttentionShape&, const AttentionMask&, const AttentionProduct&) override {}
  std::vector<Product> products;
  std::vector<ExpertProduct> stacks;
};

TEST(NewtonSchulz, RunsThePlannedProducts) {
  BufferContext context;
  context.precision = fp64_precision;
  for (const std::int64_t B : {1, 3})
    for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{6, 10}, {10, 6}, {4, 4}}) {
      Record record;
      Stack<double>(B, m, n, stack_of<double>(B * m * n, 1)).orthogonalised(&record);
      MatrixStack stack;
      stack.rows = m;
      stack.columns = n;
      stack.matrices.resize(static_cast<std::size_t>(B));
      MatrixRound round;
      round.stacks = {stack};
      Segments planned(context);
      list_round(planned, round);
      EXPECT_EQ(record.products, planned.all<Product>());
      EXPECT_EQ(record.stacks, planned.all<ExpertProduct>());
      EXPECT_DOUBLE_EQ(planned.flops(), static_cast<double>(B) * newton_schulz_flops(m, n));
    }
}

// An element's rounding grows by at most the polynomial's slope, 3.4445, in each of five steps of three products.
constexpr double growth = 500;

TEST(NewtonSchulz, IsTheFormula) {
  for (const std::int64_t B : {1, 2, 5})
    for (const auto& [m, n] :
         {std::pair{1, 1}, {1, 9}, {9, 1}, {7, 7}, {5, 24}, {24, 5}, {40, 33}, {130, 70}, {70, 130}}) {
      const double bound = growth * static_cast<double>(m + n);
      expect_formula<double>(B, m, n, 3, bound * 0x1p-53);
      expect_formula<float>(B, m, n, 3, bound * 0x1p-24);
    }
}

TEST(NewtonSchulz, TakesZerosAndTinyMatrices) {
  expect_formula<double>(3, 6, 4, 0, 0);
  expect_formula<double>(3, 6, 4, 1e-30, 1e-13);
}

// Singular values come near 1: of X Xᵀ the trace is near the rank.
TEST(NewtonSchulz, OrthogonalisesInBf16) {
  constexpr std::int64_t m = 32, n = 96;
  double trace = 0;
  for (const bf16 v : Stack<bf16>(1, m, n, stack_of<bf16>(m * n, 1)).orthogonalised())
    trace += static_cast<double>(v) * static_cast<double>(v);
  EXPECT_GT(trace, 0.6 * m);
  EXPECT_LT(trace, 1.3 * m);
}

}  // namespace
}  // namespace forge::test
