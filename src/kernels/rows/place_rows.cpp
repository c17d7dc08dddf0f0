#include "kernels/rows/place_rows.hpp"

#include "core/types.hpp"
#include "device/parallel.hpp"
#include "kernels/rows/assign.hpp"

namespace forge {

template <class T>
void place_rows(Stream& stream, View<const T, 2> from, View<const std::int32_t, 1> places, View<T, 2> to) {
  const std::int64_t n = from.columns();
  parallel_rows(stream, from.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    if (places[r] < 0) return;
    team.map(
        n, [=](const T& in, T& out) { assign(out, in); }, from.row(r), to.row(places[r]));
  });
}

template <class T>
void take_rows(Stream& stream, View<const T, 2> from, std::int64_t first, View<const std::int32_t, 1> wanted,
               View<T, 2> to) {
  const std::int64_t n = from.columns(), rows = from.rows();
  parallel_rows(stream, to.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t i, Team team) {
    const std::int64_t row = wanted[i] - first;
    if (row < 0 || row >= rows) return;
    team.map(
        n, [=](const T& in, T& out) { assign(out, in); }, from.row(row), to.row(i));
  });
}

FORGE_INSTANTIATE_FUNCTION(place_rows);
FORGE_INSTANTIATE_FUNCTION(take_rows);

}  // namespace forge
