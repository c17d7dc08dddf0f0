#include "core/normal.hpp"

#include "device/parallel.hpp"
#include "kernels/kernels.hpp"

namespace forge {

namespace {

template <class T, class Numbers>
void fill_numbers(Stream& stream, const Numbers& numbers, std::int64_t first, std::int64_t pitch, View<T, 2> to) {
  constexpr std::int64_t block = 8192;  // numbers of one team
  const std::int64_t n = to.columns();
  const auto parts = static_cast<std::uint32_t>((n + block - 1) / block);  // 32 bits: a GPU divides 64 by a call
  parallel_rows(stream, to.rows() * parts, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::uint32_t row = static_cast<std::uint32_t>(task) / parts;
    const std::int64_t begin = (static_cast<std::uint32_t>(task) - row * parts) * block,
                       from = first + row * pitch + begin;
    T* const out = to.row(row) + begin;
    team.each(n - begin < block ? n - begin : block,
              [=](std::int64_t j) { out[j] = T(static_cast<acc_t<T>>(numbers(from + j))); });
  });
}

}  // namespace

template <class T>
void fill_normal(Stream& stream, const NormalNumbers& numbers, std::int64_t first, std::int64_t pitch, View<T, 2> to) {
  fill_numbers(stream, numbers, first, pitch, to);
}
template <class T>
void fill_uniform(Stream& stream, const UniformNumbers& numbers, std::int64_t first, std::int64_t pitch,
                  View<T, 2> to) {
  fill_numbers(stream, numbers, first, pitch, to);
}

FORGE_INSTANTIATE_FUNCTION(fill_normal);
FORGE_INSTANTIATE_FUNCTION(fill_uniform);

}  // namespace forge
