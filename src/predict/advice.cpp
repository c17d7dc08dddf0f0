#include "predict/advice.hpp"

#include <algorithm>

#include "config/schedule_name.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "plan/warnings.hpp"

namespace forge {

namespace {

constexpr double least_gain = 1.01;  // times faster, to be told
constexpr double as_fast = 1.005;    // seconds of a layout that is as fast, over the other's
constexpr double smaller_by = 0.98;  // of a layout that is smaller, over the other's

// The best neighbour that fits, if it holds.
template <class Holds>
const PredictedNeighbour* first_that(const std::vector<PredictedNeighbour>& list, Holds holds) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& n) { return n.fits && holds(n); });
  return found == list.end() ? nullptr : &*found;
}

double computation(const Prediction& p) {
  double sum = 0;
  for (const CostPart part : {CostPart::products, CostPart::attention, CostPart::rows, CostPart::optimizer})
    sum += p.part[to_size(part)];
  return sum;
}

}  // namespace

std::vector<std::string> advice_of(const Outcome& o, const std::vector<PredictedNeighbour>& neighbours) {
  std::vector<std::string> list;
  const Deck& deck = o.deck;
  const double seconds = o.time.seconds;
  const auto whole_experts = first_that(neighbours, [](const auto& n) { return n.of.change == "mesh.etp=1"; });
  if (deck.model.experts > 0 && deck.mesh.etp > 1 && whole_experts && seconds > least_gain * whole_experts->seconds)
    list.push_back(formatted(
        "mesh.etp = %lld: each row goes to as many ranks, and comes back from each; better: mesh.etp = 1 (%+.1f %%)",
        static_cast<long long>(deck.mesh.etp), 100 * (seconds / whole_experts->seconds - 1)));
  const double wire = *std::max_element(o.time.wire.begin(), o.time.wire.end()), computed = computation(o.time);
  if (wire > computed) {
    const PredictedNeighbour* best = first_that(neighbours, [](const auto&) { return true; });
    const bool gains = best && seconds > least_gain * best->seconds;
    list.push_back(formatted(
        "links are needed for %.3g s of a step, its computation for %.3g s; better: %s", wire, computed,
        gains ? formatted("%s (%+.1f %%), or --search", best->of.change.c_str(), 100 * (seconds / best->seconds - 1))
                    .c_str()
              : "--search, which tries every layout"));
  }
  if (deck.schedule.name == ScheduleName::zero_bubble && deck.schedule.file.empty()) {
    const auto smaller = first_that(neighbours, [&](const auto& n) {
      return n.of.deck.schedule.name == ScheduleName::one_f_one_b && n.of.kind == "schedule" &&
             n.seconds <= as_fast * seconds &&
             static_cast<double>(n.bytes) < smaller_by * static_cast<double>(o.memory.total());
    });
    if (smaller)
      list.push_back(formatted(
          "schedule.name = zero_bubble: 1f1b needs %s instead of %s and is predicted to be as fast (%+.1f %%); better: "
          "schedule.name = 1f1b",
          format_bytes(smaller->bytes).c_str(), format_bytes(o.memory.total()).c_str(),
          100 * (seconds / smaller->seconds - 1)));
  }
  return list;
}

std::vector<std::string> all_warnings(const Machine& machine, const Outcome& outcome,
                                      const std::vector<PredictedNeighbour>& neighbours) {
  const bool gpus = machine.cores_per_node == 0;
  const Site site{machine.ranks_per_node, gpus ? outcome.usable : 0};
  std::vector<std::string> list = warnings_of(on_devices(make_setup(outcome.deck), machine.capability), site);
  for (std::string& more : advice_of(outcome, neighbours)) list.push_back(std::move(more));
  return list;
}

}  // namespace forge
