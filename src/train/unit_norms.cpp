#include "core/to_size.hpp"
#include "train/session.hpp"

#include <algorithm>
#include <cmath>

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
      s.with_gradient([&](const auto& update) { add(update, part, to + 1); });
    }
  }
  mesh_.scalars().all_reduce(stream_, norms);
  if (!run_.fp8_counts.empty()) mesh_.scalars().all_reduce(stream_, run_.fp8_counts);
}

// A step that wasn't finite has added nothing.
template <class T>
std::vector<NormReport> Session<T>::read_unit_norms(bool finite) {
  std::vector<double> squares(to_size(run_.unit_norms.size()));
  copy_to_host(stream_, squares.data(), run_.unit_norms.data, squares.size() * sizeof(double));
  stream_.synchronize();
  std::vector<NormReport> reports;
  for (std::size_t u = 0; u < setup_.units.size(); ++u)
    reports.push_back(
        {name_in_reports(setup_.units[u]), std::sqrt(squares[2 * u]), finite ? std::sqrt(squares[2 * u + 1]) : 0});
  return reports;
}

// Whether ZeRO-3 gathers some blocks' weights of a product as codes. Those of other blocks, of multi-token prediction,
// were counted all the same: a share of them alone would be another one than without the codes.
bool gathers_codes(const Fp8Options& fp8, std::size_t product) {
  const bool experts = product >= to_size(BlockProduct::expert_gate_up);
  return (experts ? fp8.coded_experts_end : fp8.coded_end) > fp8.first_block;
}

template <class T>
std::vector<Fp8Report> Session<T>::read_fp8_shares() {
  if (run_.fp8_counts.empty()) return {};
  std::vector<double> counts(to_size(run_.fp8_counts.size()));
  copy_to_host(stream_, counts.data(), run_.fp8_counts.data, counts.size() * sizeof(double));
  stream_.synchronize();
  std::vector<Fp8Report> reports;
  const double* row = counts.data();
  for (std::size_t product = 0; product < block_product_names.size(); ++product)
    for (std::size_t tensor = 0; tensor < rounded_tensor_names.size(); ++tensor) {
      const bool partly = tensor == to_size(RoundedTensor::weights) && gathers_codes(setup_.buffers.fp8, product);
      if (row[0] > 0 && !partly)
        reports.push_back(
            {block_product_names[product], rounded_tensor_names[tensor], row[1] / row[0], row[2] / row[0]});
      row += fp8_count_columns;
    }
  return reports;
}

#define FORGE_INSTANTIATE(T)                                          \
  template void Session<T>::add_unit_norms();                         \
  template std::vector<NormReport> Session<T>::read_unit_norms(bool); \
  template std::vector<Fp8Report> Session<T>::read_fp8_shares();
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
