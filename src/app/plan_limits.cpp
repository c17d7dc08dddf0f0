#include "app/plan_limits.hpp"

#include <cmath>

#include "core/error.hpp"

namespace forge {

void check_best(double best) {
  constexpr int most = 1000;
  if (!(best >= 1 && best <= most && best == std::floor(best)))
    throw BadInput("--best must be from 1 to " + std::to_string(most));
}

void check_seconds(double seconds) {
  constexpr int most = 1000000;
  if (!(seconds > 0 && seconds <= most)) throw BadInput("--seconds must be above 0, and up to " + std::to_string(most));
}

void check_imbalance(double imbalance) {
  constexpr int most = 1000;
  if (!(imbalance >= 1 && imbalance <= most))
    throw BadInput("--imbalance must be from 1 (all ranks get as many rows) to " + std::to_string(most));
}

void check_imbalance(double imbalance, const ModelDeck& model, const std::string& name) {
  if (imbalance > 1 && model.experts == 0)
    throw BadInput("--imbalance is of experts, and " + name + " has none; legal: model.experts > 0");
}

}  // namespace forge
