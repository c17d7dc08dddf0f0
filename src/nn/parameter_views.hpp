#pragma once

#include <type_traits>

#include "layout/local_units.hpp"
#include "model/parameter_lister.hpp"

namespace forge {

// Points the members of a struct of parameters (nn/*.plan.hpp) that stand in this unit into its flat buffer; H, K, F
// and V are those of this tensor-parallel rank. P is const T for the weights that a layer reads, acc_t<T> for the
// gradients that it adds to. `matrices` and `vectors`: the unit's buffer, or two of them; members of one that is not
// given stay as they are.
template <class P, class Members>
void bind(Members& members, const ModelSpec& local, const LocalUnit& unit,
          const std::type_identity_t<UnitPart<P>>& matrices, const std::type_identity_t<UnitPart<P>>& vectors) {
  ParameterLister lister(local, unit.kind, unit.layer, unit.groups, matrices, vectors);
  members.list(lister);
  lister.finish();
}
template <class P, class Members>
void bind(Members& members, const ModelSpec& local, const LocalUnit& unit, P* base) {
  bind<P>(members, local, unit, UnitPart<P>(base), UnitPart<P>(base));
}

// The one tensor of a unit that is a table or the output matrix: (V, C), or (P, C) of positions.
template <class P>
View<P, 2> table_of(const ModelSpec& s, const LocalUnit& unit, P* base) {
  const ParameterGroup& table = unit.groups.front();
  return View<P, 2>(base + table.offset, {{table.elements / s.C(), s.C()}});
}

}  // namespace forge
