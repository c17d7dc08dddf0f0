#include "core/to_size.hpp"
#include "train/session.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace forge {

namespace {

// Units of a layer, and those of the head, have one name.
std::string name_in_reports(const Unit& unit) {
  switch (unit.kind) {
    case UnitKind::experts:
      return unit.name + ".experts";
    case UnitKind::final_norm:
      return unit.name + ".norm";
    case UnitKind::position_table:
      return unit.name + ".positions";
    default:
      return unit.name;
  }
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
      s.with_gradient([&](const auto& gradient) { add(gradient, part, to + 1); });
    }
  }
  mesh_.scalars().all_reduce(stream_, norms);
  if (!run_.rounding_counts.empty()) mesh_.scalars().all_reduce(stream_, run_.rounding_counts);
}

namespace {

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
  template void Session<T>::add_unit_norms(); \
  template void Session<T>::read_unit_norms(StepResult&);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
