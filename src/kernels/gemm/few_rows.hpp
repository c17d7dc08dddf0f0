#pragma once

#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// y(R,N) = x(R,K) W(N,K)ᵀ of so few rows that the weights' bytes take the time: a row of W is read once, and multiplied
// with all rows of x. Sums in acc_t<T>, whose order K, the vector path and the build decide; no number of rows or
// threads does. T: double, float or bf16; TY: T, or float.
inline constexpr std::int64_t few_rows = 8;
template <class T, class TY>
void few_rows_product(Stream& stream, View<const T, 2> x, View<const T, 2> w, View<TY, 2> y);
// Whether it is taken for weights of this type: on GPUs, and on processors for bf16 where these have no tiles for it;
// elsewhere the library's products are as fast or faster (generation_bench).
bool few_rows_pay(DType weights);

// Its types, in the file that has it.
#define FORGE_FEW_ROWS(T, TY) \
  template void few_rows_product<T, TY>(Stream&, View<const T, 2>, View<const T, 2>, View<TY, 2>);
#define FORGE_INSTANTIATE_FEW_ROWS \
  FORGE_FEW_ROWS(double, double)   \
  FORGE_FEW_ROWS(float, float)     \
  FORGE_FEW_ROWS(bf16, bf16)       \
  FORGE_FEW_ROWS(bf16, float)

}  // namespace forge
