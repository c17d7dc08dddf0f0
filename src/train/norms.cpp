#include "core/to_size.hpp"
#include "train/session.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace forge {

template <class T>
void Session<T>::add_norm() {
  for (std::size_t u = 0; u < storage_->size(); ++u) {
    const RankUnit<T>& s = storage_->unit(u);
    if (s.local.frozen) continue;
    s.with_gradient([&]<class G>(const View<G, 1>& gradient) {
      for (const Range& part : s.counted)
        sum_of_squares<G>(stream_, gradient.slice(part.begin - s.state.begin, part.end - s.state.begin),
                          run_.norm_partials, scalar(&StepScalars::norm_squared));
    });
  }
}

// One element that this rank adds to the norm; a rank that adds none spoils its loss.
template <class T>
void Session<T>::spoil_gradient() {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t u = 0; u < storage_->size(); ++u) {
    const RankUnit<T>& s = storage_->unit(u);
    for (const Range& part : s.counted) {
      if (part.empty() || s.local.frozen) continue;
      return s.with_gradient([&]<class G>(const View<G, 1>& gradient) {
        const auto value = static_cast<G>(nan);
        copy_to_device(stream_, gradient.data + (part.begin - s.state.begin), &value, sizeof value);
        stream_.synchronize();
      });
    }
  }
  copy_to_device(stream_, scalar(&StepScalars::loss_sum).data, &nan, sizeof nan);
  stream_.synchronize();
}

namespace {

// Units of a layer, and those of the head, have one name.
std::string name_in_reports(const Unit& unit) {
  switch (unit.kind) {
    case UnitKind::experts:
      return unit.name + ".experts";
    case UnitKind::adapter:
      return unit.name + ".adapter";
    case UnitKind::expert_adapter:
      return unit.name + ".experts.adapter";
    case UnitKind::final_norm:
      return unit.name + ".norm";
    case UnitKind::position_table:
      return unit.name + ".positions";
    default:
      return unit.name;
  }
}

std::vector<RoundingReport> rounding_reports(std::span<const double> counts) {
  std::vector<RoundingReport> reports;
  if (counts.empty()) return reports;
  const double* row = counts.data();
  for (const char* product : block_product_names)
    for (const char* tensor : rounded_tensor_names) {
      if (row[0] > 0) reports.push_back({product, tensor, row[1] / row[0], row[2] / row[0]});
      row += rounding_count_columns;
    }
  return reports;
}

}  // namespace

template <class T>
void Session<T>::add_unit_norms() {
  const View<double, 2>& norms = run_.unit_norms;
  require(norms.rows() == std::ssize(setup_.units), "norms have a place for each unit of the model");
  fill_zero(stream_, norms.data, to_size(norms.size()) * sizeof(double));
  for (std::size_t u = 0; u < storage_->size(); ++u) {
    const RankUnit<T>& s = storage_->unit(u);
    const auto unit = std::find_if(setup_.units.begin(), setup_.units.end(), [&](const Unit& all) {
      return all.kind == s.local.kind && all.layer == s.local.layer;
    });
    double* const to = norms.row(unit - setup_.units.begin());
    const auto add = [&]<class V>(const View<V, 1>& values, const Range& part, double* sum) {
      sum_of_squares<V>(stream_, values.slice(part.begin - s.state.begin, part.end - s.state.begin), run_.norm_partials,
                        View<double, 1>(sum, {{1}}));
    };
    for (const Range& part : s.counted) {
      if (s.master_is_copy)
        add(s.copy, part, to);
      else
        add(s.master, part, to);
      if (!s.local.frozen) s.with_gradient([&](const auto& gradient) { add(gradient, part, to + 1); });
    }
  }
  mesh_.scalars().all_reduce(stream_, norms);
  if (!run_.rounding_counts.empty()) mesh_.scalars().all_reduce(stream_, run_.rounding_counts);
}

// A step that wasn't finite has added nothing.
template <class T>
void Session<T>::read_unit_norms(StepResult& result) {
  readback_.begin();
  const std::span<const double> squares = readback_.copy(stream_, run_.unit_norms);
  const std::span<const double> counts = readback_.copy(stream_, run_.rounding_counts);
  stream_.synchronize();
  for (std::size_t u = 0; u < setup_.units.size(); ++u)
    result.norms.push_back({name_in_reports(setup_.units[u]), std::sqrt(squares[2 * u]),
                            result.finite ? std::sqrt(squares[2 * u + 1]) : 0});
  result.rounding = rounding_reports(counts);
}

#define FORGE_INSTANTIATE(T)                  \
  template void Session<T>::add_norm();       \
  template void Session<T>::spoil_gradient(); \
  template void Session<T>::add_unit_norms(); \
  template void Session<T>::read_unit_norms(StepResult&);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
