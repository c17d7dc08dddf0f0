#include <algorithm>
#include <limits>
#include <utility>

#include "cross_entropy_problem.hpp"

namespace forge {
namespace {

using namespace reference;

// Rows so long that a GPU goes over memory once: of sm_90, 57,344 columns fill the shared memory of a block, 90,112 its
// registers, too. Each of the emulated GPU's four multiprocessors has several rows. A few logits are large, in each
// piece of 2,048, so that none of them can be missing or counted twice.
Problem<bf16> long_rows(std::int64_t R, std::int64_t V, double zc) {
  Problem<bf16> p(R, V, zc, 1, 4);
  Values x = normal_values(p.R * V, 1), labels = p.labels.read();
  for (std::int64_t r = 0; r < p.R; ++r) {
    for (std::int64_t j = 0; j < V; ++j)
      x[static_cast<std::size_t>(r * V + j)] += (j + r) % 1021 == 0 || j + 1 == V ? 4 : -12;
    if (labels[static_cast<std::size_t>(r)] >= 0)  // the first column, the last, and those between
      labels[static_cast<std::size_t>(r)] = static_cast<double>((V - 1) * r / (p.R - 1));
  }
  p.logits.write(x);
  p.labels.write(labels);
  return p;
}

TEST(CrossEntropy, matches_its_formula_on_long_rows) {
  for (const std::int64_t V : {57344, 57348, 90112, 106500}) {
    SCOPED_TRACE(::testing::Message() << V << " columns");
    Problem<bf16> p = long_rows(9, V, V % 8 ? 1e-2 : 0);
    check(p);
  }
}

TEST(CrossEntropy, nan_and_infinities_of_long_rows) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::int64_t V = 102404;
  Problem<bf16> p = long_rows(13, V, 0);
  Values x = p.logits.read(), labels = p.labels.read();
  const auto fill = [&](std::int64_t r, std::int64_t begin, std::int64_t end, double value) {
    std::fill(x.begin() + r * V + begin, x.begin() + r * V + end, value);
  };
  for (const auto& [r, column] : {std::pair(1, 4095), std::pair(2, 70000), std::pair(4, 102403)})
    fill(r, column, column + 1, std::nan(""));
  fill(6, 100000, 100001, inf);
  fill(7, 0, V, -inf);
  fill(9, 0, V - 1, -inf);
  fill(10, 0, 95000, -inf);
  labels[9] = labels[10] = static_cast<double>(V - 1);
  p.logits.write(x);
  p.labels.write(labels);
  Stream s;
  p.run(s, p.d.view());
  const Values loss = p.loss.read(s), d = p.d.read(s);
  for (std::int64_t r = 0; r < p.R; ++r) {
    SCOPED_TRACE(::testing::Message() << "row " << r);
    const bool nan = r == 1 || r == 2 || r == 4 || r == 6 || r == 7;
    EXPECT_EQ(std::isnan(loss[static_cast<std::size_t>(r)]), nan);
    EXPECT_EQ(std::count_if(d.begin() + r * V, d.begin() + (r + 1) * V, [](double v) { return std::isnan(v); }),
              nan ? V : 0);
  }
  EXPECT_EQ(loss[9], 0);
  EXPECT_EQ(std::count(d.begin() + 9 * V, d.begin() + 10 * V, 0.0), V);
  EXPECT_EQ(std::count(d.begin() + 10 * V, d.begin() + 10 * V + 95000, 0.0), 95000);
}

}  // namespace
}  // namespace forge
