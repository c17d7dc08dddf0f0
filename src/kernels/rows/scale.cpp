#include "kernels/rows/scale.hpp"

#include "device/parallel.hpp"
#include "kernels/kernels.hpp"

namespace forge {

template <class T>
void scale_matrix(Stream& stream, double factor, View<T, 2> y) {
  using A = acc_t<T>;
  const A by = static_cast<A>(factor);
  const std::int64_t n = y.columns();
  parallel_rows(stream, y.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        n, [=](T& out) { out = T(by * A(out)); }, in_place(y.row(r)));
  });
}

FORGE_INSTANTIATE_FUNCTION(scale_matrix);

}  // namespace forge
