#include "kernels/fp8/fp8_rows.hpp"

#include <algorithm>
#include <cmath>

#include "device/parallel.hpp"
#include "kernels/fp8/fp8_number.hpp"
#include "kernels/rows/largest.hpp"

namespace forge {

namespace {

constexpr auto infinite = static_cast<float>(INFINITY);

// Which row stands in place i; negative: none.
struct RowOrder {
  const std::int32_t* order;  // null: as they are
  std::int64_t chosen;

  FORGE_INLINE std::int64_t row(std::int64_t i) const {
    if (order == nullptr) return i;
    return order[i] < 0 ? -1 : quotient(order[i], chosen);
  }
};

RowOrder order_of(View<const std::int32_t, 1> order, std::int64_t chosen) {
  return {order.empty() ? nullptr : order.data, chosen};
}

// The bytes of a scale stand anywhere.
FORGE_INLINE void put_scale(float scale, std::uint8_t* to) {
  const std::uint32_t u = fp8_detail::bits_of(scale);
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::uint8_t>(u >> 8 * i);
}
FORGE_INLINE float scale_at(const std::uint8_t* from) {
  std::uint32_t u = 0;
  for (int i = 0; i < 4; ++i) u |= static_cast<std::uint32_t>(from[i]) << 8 * i;
  return fp8_detail::from_bits<float>(u);
}

RowWidth width_of(const ScaledOperand& rows, std::int64_t bytes) {
  return {(std::min(rows.columns, rows.by_column.each) * bytes + 15) / 16};
}

}  // namespace

template <class T>
void rows_to_codes(Stream& stream, View<const T, 2> x, const ScaledOperand& rows, View<const std::int32_t, 1> order,
                   std::int64_t chosen, View<std::uint8_t, 2> codes) {
  using A = acc_t<T>;
  const RowOrder places = order_of(order, chosen);
  const ScaleLines columns = rows.by_column;
  const std::int64_t n = rows.columns;
  const Fp8Format format = rows.format;
  parallel_rows(stream, codes.rows(), columns.count, width_of(rows, sizeof(T)),
                [=] FORGE_LAMBDA(std::int64_t i, std::int64_t g, Team team) {
                  const ScaleLines::Range here = columns.lines_of(g);
                  const std::int64_t count = here.end - here.begin, r = places.row(i);
                  const T* const from = r < 0 ? nullptr : x.row(r) + here.begin;
                  std::uint8_t* const to = codes.row(i) + here.begin;
                  const float amax = team.template max<float>(from == nullptr ? 0 : count,
                                                              [=](std::int64_t j) { return magnitude(from[j]); });
                  const bool finite = amax < infinite;
                  const float scale = finite ? fp8_scale(amax > 0 ? amax : 0, format, false) : 1;
                  team.each(count, [=](std::int64_t j) {
                    const float value = from == nullptr ? 0 : float(round_to_fp8(A(from[j]) * A(scale), format));
                    to[j] = fp8_code(finite ? value : NAN, format);
                  });
                  if (team.leads()) put_scale(scale, codes.row(i) + n + 4 * g);
                });
}

template <class T>
void codes_to_rows(Stream& stream, View<const std::uint8_t, 2> codes, const ScaledOperand& rows,
                   View<const std::int32_t, 1> order, std::int64_t chosen, View<T, 2> x) {
  using A = acc_t<T>;
  const RowOrder places = order_of(order, chosen);
  const ScaleLines columns = rows.by_column;
  const std::int64_t n = rows.columns;
  const Fp8Format format = rows.format;
  parallel_rows(stream, x.rows(), columns.count, width_of(rows, sizeof(T)),
                [=] FORGE_LAMBDA(std::int64_t i, std::int64_t g, Team team) {
                  const ScaleLines::Range here = columns.lines_of(g);
                  const std::int64_t r = places.row(i);
                  const std::uint8_t* const from = r < 0 ? nullptr : codes.row(r);
                  const A scale = from == nullptr ? A(1) : A(scale_at(from + n + 4 * g));
                  T* const to = x.row(i);
                  const std::int64_t begin = here.begin;
                  team.each(here.end - begin, [=](std::int64_t j) {
                    const float number = from == nullptr ? 0 : number_of(from[begin + j], format);
                    to[begin + j] = T(A(number) / scale);
                  });
                });
}

FORGE_INSTANTIATE_FUNCTION(rows_to_codes);
FORGE_INSTANTIATE_FUNCTION(codes_to_rows);

}  // namespace forge
