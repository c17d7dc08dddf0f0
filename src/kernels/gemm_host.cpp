#include <algorithm>
#include <string>
#include <type_traits>

#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_matmul.hpp"
#include "kernels/gemm_packed.hpp"

namespace forge {

namespace {

using std::int64_t;

template <class T>
Operand<T> operand(Transpose transpose, View<const T, 2> x) {
  return transpose == Transpose::no ? Operand<T>{x.data, x.pitch, 1} : Operand<T>{x.data, 1, x.pitch};
}

// C = bf16(block + beta · C), row by row; beta 0 doesn't read C.
void narrow(int threads, View<const float, 2> block, float beta, View<bf16, 2> c) {
  device_detail::split(threads, c.rows(), 1, [&](int64_t begin, int64_t end) {
    device_detail::run_rows(begin, end, [=](int64_t row, Team team) {
      const float* from = block.row(row);
      bf16* to = c.row(row);
      if (beta == 0)
        team.each(c.extent(1), [=](int64_t j) { to[j] = bf16(from[j]); });
      else
        team.each(c.extent(1), [=](int64_t j) { to[j] = bf16(from[j] + beta * static_cast<float>(to[j])); });
    });
  });
}

// One product; plain data that a worker's closure can hold.
template <class T, class TC>
struct Product {
  int threads;
  Transpose ta, tb;
  int64_t m, n, k;
  double alpha, beta;
  View<const T, 2> a, b;
  View<TC, 2> c;
};

struct Workspace {
  std::byte* data;
  std::size_t bytes;
};

template <class T>
void packed(const Product<T, acc_t<T>>& p, Workspace w) {
  using A = acc_t<T>;
  packed_gemm<T, A>(p.threads, p.m, p.n, p.k, static_cast<A>(p.alpha), operand(p.ta, p.a), operand(p.tb, p.b),
                    static_cast<A>(p.beta), p.c.data, p.c.pitch, w.data, w.bytes);
}

// A bf16 C is computed in fp32 blocks, each rounded once: half of the workspace holds the block (the stack when there
// is almost none), the other half the packed operand.
void packed(const Product<bf16, bf16>& p, Workspace w) {
  constexpr int64_t small_rows = 16, small_columns = 64;
  float small[small_rows * small_columns];
  float* block = small;
  int64_t rows = small_rows, columns = small_columns;
  const std::size_t half = w.bytes / 2 / alignof(std::max_align_t) * alignof(std::max_align_t);
  const int64_t values = static_cast<int64_t>((w.bytes - half) / sizeof(float));
  if (values >= 64 * 64) {
    block = reinterpret_cast<float*>(w.data + half);
    columns = std::min<int64_t>(p.n, std::max<int64_t>(64, std::min<int64_t>(2048, values / 256)));
    rows = std::min(p.m, values / columns);
  }
  const Operand<bf16> a = operand(p.ta, p.a), b = operand(p.tb, p.b);
  for (int64_t j = 0; j < p.n; j += columns)
    for (int64_t i = 0; i < p.m; i += rows) {
      const int64_t height = std::min(rows, p.m - i), width = std::min(columns, p.n - j);
      packed_gemm<bf16, float>(p.threads, height, width, p.k, static_cast<float>(p.alpha),
                               {a.data + i * a.row, a.row, a.column}, {b.data + j * b.column, b.row, b.column}, 0.0f,
                               block, width, w.data, half);
      const View<bf16, 2> c(p.c.row(i) + j, {{height, width}}, p.c.pitch);
      narrow(p.threads, View<const float, 2>(block, {{height, width}}), static_cast<float>(p.beta), c);
    }
}

void product(const Product<double, double>& p, Workspace w, Bf16Matmul&) {
  packed(p, w);
}

void product(const Product<float, float>& p, Workspace w, Bf16Matmul&) {
  // The library takes no empty sums, and no leading dimension that is shorter than a row it never steps over.
  if (p.k == 0) return packed(p, w);
  const auto leading = [](View<const float, 2> x) { return std::max<int64_t>({x.pitch, x.extent(1), 1}); };
  library_sgemm(p.threads, p.ta == Transpose::yes, p.tb == Transpose::yes, p.m, p.n, p.k, static_cast<float>(p.alpha),
                p.a.data, leading(p.a), p.b.data, leading(p.b), static_cast<float>(p.beta), p.c.data, leading(p.c));
}

template <class TC>
void product(const Product<bf16, TC>& p, Workspace w, Bf16Matmul& matmul) {
  const bool done = p.k > 0 && Bf16Matmul::fast() &&
                    matmul(p.threads, p.m, p.n, p.k, static_cast<float>(p.alpha), operand(p.ta, p.a),
                           operand(p.tb, p.b), static_cast<float>(p.beta), p.c.data, p.c.pitch, w.data, w.bytes);
  if (!done) packed(p, w);
}

}  // namespace

struct Gemm::Implementation {
  Workspace workspace;
  Bf16Matmul matmul;
};

Gemm::Gemm(void* workspace, std::size_t workspace_bytes)
    : impl_(new Implementation{{static_cast<std::byte*>(workspace), workspace ? workspace_bytes : 0}, {}}) {}

Gemm::~Gemm() = default;

template <class T, class TC>
void Gemm::operator()(Stream& stream, Transpose ta, Transpose tb, double alpha, View<const T, 2> a, View<const T, 2> b,
                      double beta, View<TC, 2> c) {
  const int64_t k = a.extent(ta == Transpose::no ? 1 : 0);
  require(a.extent(ta == Transpose::no ? 0 : 1) == c.rows() && b.extent(tb == Transpose::no ? 1 : 0) == c.extent(1) &&
              b.extent(tb == Transpose::no ? 0 : 1) == k,
          "the extents of a matrix product do not match");
  if (c.rows() == 0 || c.extent(1) == 0) return;
  const Product<T, TC> p{stream.threads(), ta, tb, c.rows(), c.extent(1), k, alpha, beta, a, b, c};
  if (stream.runs_inline())
    product(p, impl_->workspace, impl_->matmul);
  else
    stream.submit([p, impl = impl_.get()] { product(p, impl->workspace, impl->matmul); });
}

template void Gemm::operator()(Stream&, Transpose, Transpose, double, View<const double, 2>, View<const double, 2>,
                               double, View<double, 2>);
template void Gemm::operator()(Stream&, Transpose, Transpose, double, View<const float, 2>, View<const float, 2>,
                               double, View<float, 2>);
template void Gemm::operator()(Stream&, Transpose, Transpose, double, View<const bf16, 2>, View<const bf16, 2>, double,
                               View<bf16, 2>);
template void Gemm::operator()(Stream&, Transpose, Transpose, double, View<const bf16, 2>, View<const bf16, 2>, double,
                               View<float, 2>);

}  // namespace forge
