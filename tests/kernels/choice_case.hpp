#pragma once

#include <algorithm>
#include <numeric>

#include "core/to_size.hpp"
#include "fixture.hpp"
#include "kernels/rows/choose_token.hpp"

namespace forge::reference {

// The same choice by sorting all logits, with sums of e^(x - max x) in fp64.
inline std::int32_t by_sorting(const Values& x, const TokenChoice& how) {
  std::vector<std::int32_t> ids(x.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return x[to_size(a)] > x[to_size(b)]; });
  const std::int64_t k = how.temperature == 0 ? 1 : how.top_k;
  if (k > 0 && k < std::ssize(ids)) ids.resize(to_size(k));
  if (ids.size() == 1) return ids.front();
  Values weights;
  for (const auto id : ids) weights.push_back(std::exp((x[to_size(id)] - x[to_size(ids.front())]) / how.temperature));
  double sum = 0, mass = 0;
  for (const double w : weights) sum += w;
  std::size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || mass < how.top_p * sum)) mass += weights[kept++];
  double left = how.uniform * std::min(mass, sum);
  for (std::size_t i = 0; i < kept; ++i)
    if ((left -= weights[i]) < 0) return ids[i];
  return ids[kept - 1];
}

// choose_token of logits on the host, with its workspace.
template <class A>
class ChoiceCase {
 public:
  explicit ChoiceCase(const Values& logits)
      : count_(std::ssize(logits)),
        logits_(1, count_, logits),
        largest_(1, choice_chunks(count_)),
        weights_(1, count_),
        tokens_(2, count_),
        bins_(2, choice_bins),
        found_(1, 2) {}

  std::int32_t choose(Stream& stream, const TokenChoice& how) {
    run(stream, how);
    return static_cast<std::int32_t>(chosen_.read(stream)[0]);
  }
  void run(Stream& stream, const TokenChoice& how) {
    choose_token<A>(stream, View<const A, 1>(logits_.vector()), how,
                    {largest_.vector(), weights_.vector(), tokens_.view(), bins_.view(), found_.vector()},
                    chosen_.vector());
  }

 private:
  std::int64_t count_;
  Field<A> logits_, largest_;
  Field<std::int64_t> weights_;
  Field<std::int32_t> tokens_;
  Field<std::int64_t> bins_, found_;
  Field<std::int32_t> chosen_{1, 1};
};

}  // namespace forge::reference
