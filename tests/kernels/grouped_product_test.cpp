#include "kernels/experts/grouped_product.hpp"

#include <algorithm>
#include <string>

#include "core/to_size.hpp"
#include "fixture.hpp"
#include "kernels/experts/grouped_cutlass.hpp"

// Grouped products by tensor cores against plain loops in fp64.

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

using Offsets = std::vector<int64_t>;

struct Sizes {
  Offsets offsets;
  int64_t begin, end;  // of the order's places, those that the operands have
  int64_t inner, width;
  int64_t count() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t rows() const { return end - begin; }
};

// Groups of no, one, few and many rows, at multiples of a tile and beside them; rows before, behind and in no group;
// parts of an order; more groups than a warp has lanes; groups of equal size; widths of whole pieces of 16 bytes, of
// whole tiles, and of neither; a depth of many slots, a result of many tiles of rows.
std::vector<Sizes> cases() {
  Offsets many{0};
  for (int64_t g = 0; g < 70; ++g) many.push_back(many.back() + (g % 3 == 0 ? 0 : g % 5));
  return {{{0, 0, 1, 4, 4, 70, 70}, 0, 70, 24, 40},
          {{3, 30, 31, 300}, 0, 307, 136, 264},
          {{0, 128, 128, 384, 385}, 0, 385, 64, 128},
          {{0, 300}, 0, 300, 70, 33},
          {{0, 50, 51, 51, 300}, 40, 200, 17, 131},
          {{5, 5, 5}, 0, 9, 8, 8},
          {many, 0, many.back(), 16, 8},
          {{0, 5}, 0, 5, 2200, 264},
          {{0, 22, 44, 66}, 0, 66, 32, 24}};
}

// What a sum of products rounds to at each instruction, which adds 16 of them: the emulated tensor core's to fp32; a
// GPU's keeps a few bits less.
#if defined(FORGE_VGPU)
constexpr double sum_roundoff = 0x1p-24;
#else
constexpr double sum_roundoff = 0x1p-21;
#endif

// Forge's own kernels, or CUTLASS's, which take aligned operands alone: false where they leave a product to the former.
class Kernels {
 public:
  explicit Kernels(bool cutlass = false) : cutlass_(cutlass), memory_(cutlass ? workspace_bytes : 1) {}

  bool rows(Stream& s, const RowGroups& groups, bool by_rows, View<const bf16, 2> a, View<const bf16, 3> b,
            View<bf16, 2> c, double alpha, bool adds) const {
    const CutlassWorkspace workspace{memory_.data(), workspace_bytes};
    if (cutlass_) return grouped_rows_by_cutlass(s, workspace, groups, by_rows, a, b, c, alpha, adds);
    grouped_rows(s, groups, by_rows, a, b, c, alpha, adds);
    return true;
  }
  bool sums(Stream& s, const RowGroups& groups, View<const bf16, 2> a, View<const bf16, 2> b, bool adds,
            View<float, 3> c) const {
    if (cutlass_) return grouped_sums_by_cutlass(s, {memory_.data(), workspace_bytes}, groups, a, b, adds, c);
    grouped_sums(s, groups, a, b, adds, c);
    return true;
  }
  bool take(const Sizes& n, int64_t gap) const {
    return !cutlass_ || (n.inner % 8 == 0 && n.width % 8 == 0 && gap % 8 == 0 && n.rows() > 0);
  }

 private:
  static constexpr std::size_t workspace_bytes = 1 << 20;
  bool cutlass_;
  Buffer memory_;
};

class Problem {
 public:
  explicit Problem(const Sizes& sizes, const Kernels& kernels = own_kernels())
      : n(sizes), kernels_(kernels), memory_(sizes.offsets.size() * 8) {
    copy_to_device(s, memory_.data(), n.offsets.data(), n.offsets.size() * 8);
    s.synchronize();
    groups_ = {n.count(), reinterpret_cast<const int64_t*>(memory_.data()), n.begin, n.end};
  }

  // C(rows of g) = or += alpha A(rows of g) B_gᵀ, or B_g; alpha: a power of 2.
  void check_rows(bool by_rows, int64_t gap, double alpha = 1, bool adds = false) {
    const int64_t G = n.count(), K = n.inner, N = n.width, R = n.rows();
    Field<bf16> a(R, K, normal_values(R * K, 1), gap), b(G, K * N, normal_values(G * K * N, 2), 2 * gap);
    Field<bf16> c(R, N, normal_values(R * N, 3), gap);
    const View<const bf16, 3> matrices(b.data(), {{G, by_rows ? N : K, by_rows ? K : N}}, b.pitch);
    const Values av = a.read(), bv = b.read(), before = c.read();
    ASSERT_EQ(kernels_.rows(s, groups_, by_rows, a.view(), matrices, c.view(), alpha, adds), kernels_.take(n, gap));
    if (!kernels_.take(n, gap)) return;
    const Values after = c.read(s);
    std::vector<int64_t> group(static_cast<std::size_t>(R), -1);
    for (int64_t g = 0; g < G; ++g)
      for (int64_t r = first(g); r < first(g + 1); ++r) group[static_cast<std::size_t>(r)] = g;
    for (int64_t r = 0; r < R; ++r)
      for (int64_t j = 0; j < N; ++j) {
        const int64_t g = group[static_cast<std::size_t>(r)], at = r * N + j;
        if (g < 0) {
          ASSERT_EQ(after[to_size(at)], before[to_size(at)]) << "a row of no group";
          continue;
        }
        expect_element(after[to_size(at)], adds ? before[to_size(at)] : 0, 0x1p-8, K, [&](int64_t p) {
          return std::pair{alpha * av[to_size(r * K + p)], bv[to_size(g * K * N + (by_rows ? j * K + p : p * N + j))]};
        });
      }
  }

  // C_g = or += A(rows of g)ᵀ B(rows of g)
  void check_sums(int64_t gap, bool adds) {
    const int64_t G = n.count(), M = n.inner, N = n.width, R = n.rows();
    Field<bf16> a(R, M, normal_values(R * M, 1), gap), b(R, N, normal_values(R * N, 2), gap);
    Field<float> c(G, M * N, normal_values(G * M * N, 3), gap);
    const Values av = a.read(), bv = b.read(), before = c.read();
    ASSERT_EQ(kernels_.sums(s, groups_, a.view(), b.view(), adds, View<float, 3>(c.data(), {{G, M, N}}, c.pitch)),
              kernels_.take(n, gap));
    if (!kernels_.take(n, gap)) return;
    const Values after = c.read(s);
    for (int64_t g = 0; g < G; ++g)
      for (int64_t i = 0; i < M; ++i)
        for (int64_t j = 0; j < N; ++j) {
          const auto at = to_size((g * M + i) * N + j);
          expect_element(after[at], adds ? before[at] : 0, 0x1p-24, first(g + 1) - first(g), [&](int64_t p) {
            return std::pair{av[to_size((first(g) + p) * M + i)], bv[to_size((first(g) + p) * N + j)]};
          });
        }
  }

  // Sums twice.
  void check_bits() {
    const int64_t G = n.count(), K = n.inner, N = n.width, R = n.rows();
    Field<bf16> a(R, K, normal_values(R * K, 1)), b(R, N, normal_values(R * N, 2));
    Field<float> c(G, K * N, normal_values(G * K * N, 3)), d(G, K * N, normal_values(G * K * N, 3));
    for (const Field<float>* sums : {&c, &d})
      kernels_.sums(s, groups_, a.view(), b.view(), true, View<float, 3>(sums->data(), {{G, K, N}}));
    ASSERT_EQ(c.read(s), d.read(s));
  }

 private:
  static const Kernels& own_kernels() {
    static const Kernels own;
    return own;
  }

  // The first row of a group, among the operands' rows.
  int64_t first(int64_t g) const { return std::clamp(n.offsets[to_size(g)], n.begin, n.end) - n.begin; }

  template <class Factors>
  static void expect_element(double found, double old, double roundoff, int64_t length, Factors factors) {
    double sum = 0, magnitude = std::abs(old);
    for (int64_t p = 0; p < length; ++p) {
      const auto [x, y] = factors(p);
      sum += x * y, magnitude += std::abs(x * y);
    }
    const double error = static_cast<double>(length / 16 + 2) * sum_roundoff * magnitude;
    ASSERT_NEAR(found, old + sum, error + roundoff * (std::abs(old + sum) + error));
  }

  Sizes n;
  const Kernels& kernels_;
  Stream s{1};
  Buffer memory_;
  RowGroups groups_;
};

TEST(GroupedProduct, RowsAgreeWithPlainLoops) {
  for (const Sizes& sizes : cases())
    for (const bool by_rows : {true, false})
      for (const int64_t gap : {0, 3, 8}) {
        SCOPED_TRACE(testing::Message() << sizes.count() << " groups, " << sizes.inner << " x " << sizes.width);
        Problem(sizes).check_rows(by_rows, gap);
        Problem(sizes).check_rows(by_rows, gap, 0.5, gap == 3);
        Problem(sizes).check_rows(by_rows, gap, 0.5, gap != 3);
        if (HasFatalFailure()) return;
      }
}

TEST(GroupedProduct, SumsAgreeWithPlainLoops) {
  for (const Sizes& sizes : cases())
    for (const int64_t gap : {0, 3, 8}) {
      SCOPED_TRACE(testing::Message() << sizes.count() << " groups, " << sizes.inner << " x " << sizes.width);
      for (const bool adds : {true, false}) Problem(sizes).check_sums(gap, adds);
      if (HasFatalFailure()) return;
    }
}

TEST(GroupedProduct, GivesTheSameBitsAgain) {
  for (const Sizes& sizes : cases()) Problem(sizes).check_bits();
}

// Nothing to do is nothing done.
TEST(GroupedProduct, GroupsWithoutRows) {
  Problem problem({{0, 0, 0}, 0, 0, 8, 8});
  problem.check_rows(true, 0);
  problem.check_rows(false, 0);
  for (const bool adds : {true, false}) problem.check_sums(0, adds);
}

// All of it once more, by CUTLASS.
TEST(GroupedProduct, ByCutlass) {
  if (!cutlass_built_in()) GTEST_SKIP() << "this build has no kernels of CUTLASS (FORGE_CUTLASS)";
  if (std::string(device_info().features) != "sm_90") GTEST_SKIP() << "CUTLASS's kernels are those of sm_90";
  const Kernels cutlass(true);
  std::vector<Sizes> all = cases();
  all.push_back({{0, 0, 0}, 0, 0, 8, 8});
  for (const Sizes& sizes : all)
    for (const int64_t gap : {0, 3, 8}) {
      SCOPED_TRACE(testing::Message() << sizes.count() << " groups, " << sizes.inner << " x " << sizes.width);
      for (const bool way : {true, false}) {
        Problem(sizes, cutlass).check_rows(way, gap);
        Problem(sizes, cutlass).check_rows(way, gap, 0.5, true);
        Problem(sizes, cutlass).check_sums(gap, way);
        Problem(sizes, cutlass).check_bits();
        if (HasFatalFailure()) return;
      }
    }
}

}  // namespace
}  // namespace forge
