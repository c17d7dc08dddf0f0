#include <algorithm>
#include <cmath>
#include <sstream>

#include "layout_run.hpp"
#include "models.hpp"

namespace forge::test {

namespace {

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// max|a − b|; infinite where one has NaN or another length.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    largest = std::isnan(d) ? HUGE_VAL : std::max(largest, d);
  }
  return largest;
}

Deviations deviations_of(const Tensors& tensors, const Tensors& one) {
  Deviations result;
  for (const auto& [name, values] : tensors) {
    const auto found = one.find(name);
    result[name].largest = found == one.end() ? HUGE_VAL : distance(values, found->second);
    result[name].owned = static_cast<std::int64_t>(values.size());
  }
  return result;
}

// The tensor that deviates most, against its own largest entry, but no less than a thousandth of the largest of all.
std::string tensor_difference(const Deviations& deviations, const Tensors& one, double bound) {
  double all = 0, worst = 0;
  for (const auto& [name, values] : one) all = std::max(all, largest_of(values));
  std::string which;
  for (const auto& [name, deviation] : deviations)
    if (one.count(name) == 0) return name + " is none of the model's tensors";
  for (const auto& [name, values] : one) {
    const auto found = deviations.find(name);
    if (found == deviations.end()) return name + " is missing";
    if (found->second.owned != static_cast<std::int64_t>(values.size()))
      return name + ": " + std::to_string(found->second.owned) + " of " + std::to_string(values.size()) +
             " elements are owned";
    const double d = found->second.largest / std::max(largest_of(values), 1e-3 * all);
    if (!(d <= worst)) {
      worst = d;
      which = name;
    }
  }
  std::ostringstream text;
  if (!(worst <= bound)) text << which << " deviates by " << worst << " (bound " << bound << ")";
  return text.str();
}

// Of the whole tensors and of every rank's part, whichever there is.
std::string tensors_difference(const Tensors& whole, const Deviations& parts, const Tensors& one, double bound) {
  if (one.empty()) return "the reference has no tensors";
  if (whole.empty() && parts.empty()) return "no tensors";
  if (!whole.empty())
    if (const auto text = tensor_difference(deviations_of(whole, one), one, bound); !text.empty()) return text;
  return parts.empty() ? "" : tensor_difference(parts, one, bound);
}

std::string number_difference(const char* what, double value, double one, double bound) {
  std::ostringstream text;
  text.precision(17);
  if (!(std::abs(value - one) <= bound * std::abs(one))) text << what << " " << value << " instead of " << one;
  return text.str();
}

// Row by row: what ranks saw of it.
std::string routing_difference(const Routing& routing, const Routing& one) {
  for (const auto& [key, experts] : routing) {
    const auto found = one.find(key);
    if (found == one.end() || found->second != experts)
      return "layer " + std::to_string(key[0]) + " routes position " + std::to_string(key[2]) + " of sample " +
             std::to_string(key[1]) + " to other experts";
  }
  return "";
}

}  // namespace

std::string difference(const LayoutResult& result, const LayoutResult& one, double scale) {
  const double bound = 1e-11 * scale;
  for (const std::string& text : {result.problem, routing_difference(result.routing, one.routing),
                                  number_difference("loss", result.loss, one.loss, bound),
                                  number_difference("total loss", result.total_loss, one.total_loss, bound),
                                  number_difference("gradient norm", result.grad_norm, one.grad_norm, bound)})
    if (!text.empty()) return text;
  return tensors_difference(result.gradients, result.gradient_deviations, one.gradients, bound);
}

std::string training_difference(const LayoutResult& result, const LayoutResult& one, double bound) {
  if (!result.problem.empty()) return result.problem;
  if (result.losses.size() != one.losses.size()) return "another number of steps";
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    const std::string step = "step " + std::to_string(i + 1) + ": ";
    for (const std::string& text : {number_difference("loss", result.losses[i], one.losses[i], bound),
                                    number_difference("total loss", result.total_losses[i], one.total_losses[i], bound),
                                    number_difference("gradient norm", result.norms[i], one.norms[i], bound)})
      if (!text.empty()) return step + text;
  }
  if (result.source_losses.size() != one.source_losses.size()) return "another number of sources";
  for (std::size_t i = 0; i < one.source_losses.size(); ++i)
    if (const auto text = number_difference("loss of a source", result.source_losses[i], one.source_losses[i], bound);
        !text.empty())
      return text;
  if (result.reports.size() != one.reports.size()) return "another number of logits and norms";
  for (std::size_t i = 0; i < one.reports.size(); ++i)
    if (const auto text = number_difference("report", result.reports[i], one.reports[i], bound); !text.empty())
      return text;
  if (result.router_reports.size() != one.router_reports.size()) return "another number of routers";
  for (std::size_t i = 0; i < one.router_reports.size(); ++i)
    if (const auto text =
            number_difference("report of a router", result.router_reports[i], one.router_reports[i], bound);
        !text.empty())
      return text;
  if (result.clipped_heads != one.clipped_heads) return "another number of clipped heads";
  const auto text = number_difference("validation loss", result.validation_loss, one.validation_loss, bound);
  if (!text.empty()) return text;
  return tensors_difference(result.parameters, result.parameter_deviations, one.parameters, bound);
}

std::string triviality(const LayoutResult& one, const Deck& deck) {
  // A block has six tensors or more; some units may be frozen.
  const auto least =
      deck.train.frozen.empty() && !deck.model.adapter.on() ? static_cast<std::size_t>(6 * deck.model.layers + 2) : 1;
  if (one.gradients.size() < least) return "only " + std::to_string(one.gradients.size()) + " tensors";
  long double squares = 0;  // of many terms, whose rounding would exceed the bound in double
  for (const auto& [name, values] : one.gradients) {
    if ((largest_of(values) > 0) == is_idle(deck, name))
      return "the gradient of " + name + (is_idle(deck, name) ? " is not zero" : " is zero");
    for (const double v : values) squares += static_cast<long double>(v) * v;
  }
  // 64 eps: both sums round, in another order.
  const double eps = deck.train.precision == PrecisionName::fp64 ? 2.3e-16 : 1.2e-7;
  if (auto text = number_difference("gradient norm", one.grad_norm, static_cast<double>(std::sqrt(squares)), 64 * eps);
      !text.empty())
    return text + ", the tensors' own";
  const double uniform = std::log(static_cast<double>(deck.model.vocabulary));
  if (!deck.preference.on() && !(one.loss > 0.5 * uniform && one.loss < 2 * uniform))
    return "a loss of " + std::to_string(one.loss) + ", where log V is " + std::to_string(uniform);
  if (deck.preference.on() && !(one.loss > 0.1 && one.loss < 2)) return "a saturated loss of pairs";
  if (!(one.total_loss >= one.loss)) return "a total loss below the loss";
  const bool adds = deck.train.z_loss_coefficient > 0 || deck.model.router_z_coefficient > 0 ||
                    deck.model.auxiliary_loss_coefficient > 0 || deck.model.mtp_depth > 0;
  if ((one.total_loss > one.loss) != adds) return "a further loss is not in the total loss";
  for (std::size_t i = 1; i < one.losses.size(); ++i)
    if (one.losses[i] == one.losses[0]) return "training does not move the loss";
  return "";
}

}  // namespace forge::test
