#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "fixture.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

TEST(BalancedExperts, AreFarApartAndLoadedAlike) {
  Field<std::int32_t> positions(1, 48), experts(48, 3), four(48, 4);
  Values p(48);
  std::iota(p.begin(), p.end(), 5.0);
  positions.write(p);
  Stream s;
  const auto check = [&](const RouterOptions& o, const Values& e, std::size_t k) {
    for (double i = 0; i < static_cast<double>(o.experts); ++i)
      EXPECT_EQ(std::count(e.begin(), e.end(), i), static_cast<std::int64_t>(e.size()) / o.experts);
    for (std::size_t r = 0; r < 48; ++r) {
      std::set<double> chosen, groups;
      for (std::size_t c = 0; c < k; ++c) {
        chosen.insert(e[r * k + c]);
        groups.insert(std::floor(e[r * k + c] * static_cast<double>(o.groups) / static_cast<double>(o.experts)));
      }
      EXPECT_TRUE(chosen.size() == k && static_cast<int64_t>(groups.size()) <= o.groups_used) << "row " << r;
    }
  };
  // Far apart: a third of the experts between the choices of a row.
  RouterOptions o{.experts = 8};
  balanced_experts(s, o, positions.vector(), experts.view());
  const Values three = experts.read(s);
  EXPECT_EQ(Values(three.begin(), three.begin() + 6), (Values{5, 7, 2, 6, 0, 3}));
  check(o, three, 3);
  // Three of six groups, and two of four.
  for (const auto& [all, used, first] : {std::tuple{6, 3, Values{5, 13, 21, 7}}, {4, 2, Values{5, 17, 2, 14}}}) {
    o = {.experts = 24, .groups = all, .groups_used = used};
    balanced_experts(s, o, positions.vector(), four.view());
    const Values e = four.read(s);
    EXPECT_EQ(Values(e.begin(), e.begin() + 4), first);
    check(o, e, 4);
  }
}

}  // namespace
}  // namespace forge
