#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/assign.hpp"

namespace forge {

namespace {

constexpr std::int64_t block = 8192;  // numbers of one team, of arrays without rows

}  // namespace

template <class From, class To>
void convert(Stream& stream, View<const From, 1> from, View<To, 1> to) {
  const std::int64_t n = from.rows();
  parallel_rows(stream, (n + block - 1) / block, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    const std::int64_t begin = b * block, width = n - begin < block ? n - begin : block;
    team.map(
        width, [=](const From& in, To& out) { assign(out, in); }, from.data + begin, to.data + begin);
  });
}

template <class T>
void copy_rows(Stream& stream, View<const T, 2> from, View<T, 2> to) {
  note_rows(stream, "copy_rows", bytes_in(from), bytes_in(to));
  const std::int64_t n = from.columns();
  parallel_rows(stream, from.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        n, [=](const T& in, T& out) { assign(out, in); }, from.row(r), to.row(r));
  });
}

template <class From, class To>
void convert_rows(Stream& stream, View<const From, 2> from, View<To, 2> to) {
  note_rows(stream, "convert_rows", bytes_in(from), bytes_in(to));
  const std::int64_t n = from.columns();
  parallel_rows(stream, from.rows(), row_width<From>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        n, [=](const From& in, To& out) { assign(out, in); }, from.row(r), to.row(r));
  });
}

template <class T>
void accumulate(Stream& stream, View<const T, 2> x, View<acc_t<T>, 2> y) {
  note_rows(stream, "accumulate", bytes_in(x, y), bytes_in(y));
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        n, [=](const T& in, A& out) { out += A(in); }, x.row(r), in_place(y.row(r)));
  });
}

template <class T>
void add(Stream& stream, View<const T, 1> x, View<T, 1> y) {
  note_rows(stream, "add", bytes_in(x, y), bytes_in(y));
  using A = acc_t<T>;
  const std::int64_t n = x.rows();
  parallel_rows(stream, (n + block - 1) / block, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    const std::int64_t begin = b * block, width = n - begin < block ? n - begin : block;
    team.map(
        width, [=](const T& in, T& out) { out = T(A(out) + A(in)); }, x.data + begin, in_place(y.data + begin));
  });
}

template <class T, class X>
void add_bias(Stream& stream, View<const T, 1> bias, View<X, 2> x) {
  note_rows(stream, "add_bias", bytes_in(x), bytes_in(x));
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), row_width<X>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* b = bias.data;
    team.map(
        n, [=](const T& b_j, X& to) { to = X(A(to) + A(b_j)); }, b, in_place(x.row(r)));
  });
}

#define FORGE_CONVERT(From)                                                           \
  template void convert<From, double>(Stream&, View<const From, 1>, View<double, 1>); \
  template void convert<From, float>(Stream&, View<const From, 1>, View<float, 1>);   \
  template void convert<From, bf16>(Stream&, View<const From, 1>, View<bf16, 1>);
FORGE_COMPUTE_TYPES(FORGE_CONVERT)

FORGE_INSTANTIATE_ONE(convert_rows<double, double>);
FORGE_INSTANTIATE_ONE(convert_rows<float, float>);
FORGE_INSTANTIATE_ONE(convert_rows<bf16, bf16>);
FORGE_INSTANTIATE_ONE(convert_rows<bf16, float>);
FORGE_INSTANTIATE_ONE(convert_rows<float, bf16>);
FORGE_INSTANTIATE_FUNCTION(copy_rows);
FORGE_INSTANTIATE_FUNCTION(accumulate);
FORGE_INSTANTIATE_FUNCTION(add);
FORGE_INSTANTIATE_ONE(add_bias<double, double>);
FORGE_INSTANTIATE_ONE(add_bias<float, float>);
FORGE_INSTANTIATE_ONE(add_bias<bf16, bf16>);
FORGE_INSTANTIATE_ONE(add_bias<bf16, float>);

}  // namespace forge
