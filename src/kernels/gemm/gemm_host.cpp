#include <omp.h>

#include <algorithm>
#include <exception>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "device/parallel.hpp"
#include "kernels/experts/grouped_product.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/gemm_matmul.hpp"
#include "kernels/gemm/gemm_packed.hpp"

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

void library_product(const Product<float, float>& p, Workspace w) {
  // The library takes no empty sums, and no leading dimension that is shorter than a row it never steps over.
  if (p.k == 0) return packed(p, w);
  const auto leading = [](View<const float, 2> x) { return std::max<int64_t>({x.pitch, x.extent(1), 1}); };
  library_sgemm(p.threads, p.ta == Transpose::yes, p.tb == Transpose::yes, p.m, p.n, p.k, static_cast<float>(p.alpha),
                p.a.data, leading(p.a), p.b.data, leading(p.b), static_cast<float>(p.beta), p.c.data, leading(p.c));
}

void product(const Product<float, float>& p, Workspace w, Bf16Matmul&) {
  library_product(p, w);
}

template <class TC>
bool library_product(const Product<bf16, TC>& p, Workspace w, Bf16Matmul& matmul) {
  return p.k > 0 && matmul(p.threads, p.m, p.n, p.k, static_cast<float>(p.alpha), operand(p.ta, p.a),
                           operand(p.tb, p.b), static_cast<float>(p.beta), p.c.data, p.c.pitch, w.data, w.bytes);
}

template <class TC>
void product(const Product<bf16, TC>& p, Workspace w, Bf16Matmul& matmul) {
  if (!Bf16Matmul::fast() || !library_product(p, w, matmul)) packed(p, w);
}

// `count` rows of a group from `begin` on: rows of C, or those that a weight's gradient sums, which adds to C behind
// the first.
template <class TC>
Product<bf16, TC> rows_of(const Product<bf16, TC>& p, int64_t begin, int64_t count) {
  Product<bf16, TC> part = p;
  part.a = p.a.slice(begin, begin + count);
  if (p.ta == Transpose::no) {
    part.m = count;
    part.c = p.c.slice(begin, begin + count);
  } else {
    part.k = count;
    part.b = p.b.slice(begin, begin + count);
    if (begin > 0) part.beta = 1;
  }
  return part;
}

// One tile of a group's product, in one thread.
template <class T, class TC>
void tile_product(const Product<T, TC>& p, Workspace w) {
  packed(p, w);
}
// oneDNN keeps a primitive for every number of rows: a group is cut into pieces of 512, 256, … 16 rows, and what is
// left is multiplied in fp32.
template <class TC>
void tile_product(const Product<bf16, TC>& p, Workspace w) {
  static thread_local Bf16Matmul matmul;
  const int64_t rows = p.ta == Transpose::no ? p.m : p.k;
  const bool exact = p.ta == Transpose::no || std::is_same_v<TC, float>;  // sums of pieces aren't rounded to bf16
  int64_t begin = 0;
  for (int64_t count = 512; count >= 16 && exact && Bf16Matmul::fast(); count /= 2)
    while (rows - begin >= count && library_product(rows_of(p, begin, count), w, matmul)) begin += count;
  if (begin < rows || rows == 0) packed(rows_of(p, begin, rows - begin), w);
}
void tile_product(const Product<float, float>& p, Workspace w) {
  library_product(p, w);
}

struct Rectangle {
  int64_t row, column, rows, columns;
};

// The tiles of the products C_g, of height(begin, end) x columns each: squares of a size that the shapes alone decide,
// small enough for at least 32 of them, so that threads find work, but not smaller than the products can bear.
template <class Height>
struct Tiles {
  const int64_t* offsets;
  int64_t groups, columns;
  Height height;
  int64_t size = 512;

  Tiles(std::span<const int64_t> bounds, int64_t width, Height h)
      : offsets(bounds.data()), groups(static_cast<int64_t>(bounds.size()) - 1), columns(width), height(h) {
    while (size > 128 && count() < 32) size /= 2;
  }
  int64_t across() const { return (columns + size - 1) / size; }
  int64_t of_group(int64_t g) const { return (height(offsets[g], offsets[g + 1]) + size - 1) / size * across(); }
  int64_t count() const {
    int64_t n = 0;
    for (int64_t g = 0; g < groups; ++g) n += of_group(g);
    return n;
  }
  // Tile number `t` of all: its group and place.
  std::pair<int64_t, Rectangle> operator[](int64_t t) const {
    int64_t g = 0;
    for (; t >= of_group(g); ++g) t -= of_group(g);
    const int64_t row = t / across() * size, column = t % across() * size;
    const int64_t rows = height(offsets[g], offsets[g + 1]);
    return {g, {row, column, std::min(size, rows - row), std::min(size, columns - column)}};
  }
};

// Every tile in one thread, with that thread's part of the workspace.
template <class Height, class Tile>
void run_tiles(int threads, const Tiles<Height>& tiles, Workspace w, const Tile& tile) {
  const int64_t count = tiles.count();
  const std::size_t part = w.bytes / to_size(threads) / 64 * 64;
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && count > 1)
  for (int64_t t = 0; t < count; ++t) {
    try {
      const auto [g, rectangle] = tiles[t];
      const auto mine = to_size(omp_get_thread_num());
      tile_product(tile(tiles.offsets[g], tiles.offsets[g + 1], g, rectangle), {w.data + mine * part, part});
    } catch (...) {  // no exception may leave the parallel region
#pragma omp critical(forge_grouped_product)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

template <class Height, class Tile>
void run_grouped(Stream& stream, std::span<const int64_t> offsets, int64_t columns, Workspace w, Height height,
                 Tile tile) {
  if (stream.runs_inline()) return run_tiles(stream.threads(), Tiles<Height>(offsets, columns, height), w, tile);
  stream.submit([bounds = std::vector<int64_t>(offsets.begin(), offsets.end()), threads = stream.threads(), columns, w,
                 height, tile] { run_tiles(threads, Tiles<Height>(bounds, columns, height), w, tile); });
}

// Groups begin where their memory says when the stream gets there.
template <class Height, class Tile>
void run_grouped(Stream& stream, const RowGroups& groups, int64_t columns, Workspace w, Height height, Tile tile) {
  const auto run = [groups, threads = stream.threads(), columns, w, height, tile] {
    std::vector<int64_t> bounds;
    for (int64_t g = 0; g <= groups.count; ++g) bounds.push_back(groups.begin_of(g));
    run_tiles(threads, Tiles<Height>(bounds, columns, height), w, tile);
  };
  if (stream.runs_inline()) return run();
  stream.submit(run);
}

// C(rows of g) = alpha · A(rows of g) · op(B_g) + beta · C(rows of g), of `bounds`: host's offsets, or RowGroups.
template <class T, class TC, class Bounds>
void grouped_rows_in(Stream& stream, const Bounds& bounds, Workspace w, Transpose tb, double alpha, View<const T, 2> a,
                     View<const T, 3> b, double beta, View<TC, 2> c) {
  const bool flip = tb == Transpose::yes;
  require(a.rows() == c.rows() && b.extent(flip ? 2 : 1) == a.extent(1) && b.extent(flip ? 1 : 2) == c.extent(1),
          "the extents of a grouped product do not match");
  const auto tile = [=](int64_t begin, int64_t end, int64_t g, Rectangle t) {
    const int64_t inner = a.extent(1), n = t.columns;
    const View<const T, 2> matrix(b.row(g), {{b.extent(1), b.extent(2)}});
    const auto rows = a.slice(begin + t.row, begin + t.row + t.rows);
    const auto part = flip ? matrix.slice(t.column, t.column + n) : columns_of(matrix, t.column, n);
    const auto to = columns_of(c.slice(begin, end).slice(t.row, t.row + t.rows), t.column, n);
    return Product<T, TC>{1, Transpose::no, tb, t.rows, n, inner, alpha, beta, rows, part, to};
  };
  const auto height = [](int64_t begin, int64_t end) { return end - begin; };
  run_grouped(stream, bounds, c.extent(1), w, height, tile);
}

// C_g = alpha · A(rows of g)ᵀ · B(rows of g) + beta · C_g.
template <class T, class TC, class Bounds>
void grouped_sums_in(Stream& stream, const Bounds& bounds, Workspace w, double alpha, View<const T, 2> a,
                     View<const T, 2> b, double beta, View<TC, 3> c) {
  require(a.rows() == b.rows() && a.extent(1) == c.extent(1) && b.extent(1) == c.extent(2),
          "the extents of a grouped product do not match");
  const auto tile = [=](int64_t begin, int64_t end, int64_t g, Rectangle t) {
    const View<TC, 2> matrix(c.row(g), {{c.extent(1), c.extent(2)}});
    const auto left = columns_of(a.slice(begin, end), t.row, t.rows);
    const auto right = columns_of(b.slice(begin, end), t.column, t.columns);
    const auto to = columns_of(matrix.slice(t.row, t.row + t.rows), t.column, t.columns);
    return Product<T, TC>{1,     Transpose::yes, Transpose::no, t.rows, t.columns, end - begin,
                          alpha, beta,           left,          right,  to};
  };
  const int64_t rows = c.extent(1);
  const auto height = [=](int64_t begin, int64_t end) { return end == begin && beta == 1 ? 0 : rows; };
  run_grouped(stream, bounds, c.extent(2), w, height, tile);
}

}  // namespace

struct Gemm::Implementation {
  Workspace workspace;
  Bf16Matmul matmul;
};

Gemm::Gemm(void* workspace, std::size_t workspace_bytes, bool, int)
    : impl_(new Implementation{{static_cast<std::byte*>(workspace), workspace ? workspace_bytes : 0}, {}}) {}

Gemm::~Gemm() = default;

std::span<std::byte> Gemm::workspace() const {
  return {impl_->workspace.data, impl_->workspace.bytes};
}

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

template <class T, class TC>
void Gemm::grouped_rows(Stream& stream, std::span<const int64_t> offsets, Transpose tb, double alpha,
                        View<const T, 2> a, View<const T, 3> b, double beta, View<TC, 2> c) {
  require(static_cast<int64_t>(offsets.size()) == b.rows() + 1 && offsets.front() >= 0 && offsets.back() <= a.rows(),
          "the offsets of a grouped product do not match its extents");
  grouped_rows_in(stream, offsets, impl_->workspace, tb, alpha, a, b, beta, c);
}

template <class T, class TC>
void Gemm::grouped_sums(Stream& stream, std::span<const int64_t> offsets, double alpha, View<const T, 2> a,
                        View<const T, 2> b, double beta, View<TC, 3> c) {
  require(static_cast<int64_t>(offsets.size()) == c.rows() + 1 && offsets.front() >= 0 && offsets.back() <= a.rows(),
          "the offsets of a grouped product do not match its extents");
  grouped_sums_in(stream, offsets, impl_->workspace, alpha, a, b, beta, c);
}

namespace {

std::vector<int64_t> even_offsets(int64_t height, int64_t groups) {
  std::vector<int64_t> offsets(to_size(groups) + 1);
  for (int64_t g = 0; g <= groups; ++g) offsets[to_size(g)] = g * height;
  return offsets;
}

}  // namespace

template <class T>
void Gemm::batched_rows(Stream& stream, int64_t height, Transpose tb, double alpha, View<const T, 2> a,
                        View<const T, 3> b, double beta, View<T, 2> c) {
  grouped_rows<T, T>(stream, even_offsets(height, b.rows()), tb, alpha, a, b, beta, c);
}

template <class T>
void Gemm::batched_sums(Stream& stream, int64_t height, double alpha, View<const T, 2> a, View<const T, 2> b,
                        double beta, View<T, 3> c) {
  grouped_sums<T, T>(stream, even_offsets(height, c.rows()), alpha, a, b, beta, c);
}

template <class T>
void Gemm::grouped_rows(Stream& stream, const RowGroups& groups, Transpose tb, View<const T, 2> a, View<const T, 3> b,
                        View<T, 2> c, double alpha, bool adds) {
  require(groups.count == b.rows() && groups.rows() == a.rows(), "the groups of a product do not match its extents");
  grouped_rows_in(stream, groups, impl_->workspace, tb, alpha, a, b, adds ? 1 : 0, c);
}

template <class T>
void Gemm::grouped_sums(Stream& stream, const RowGroups& groups, View<const T, 2> a, View<const T, 2> b, bool adds,
                        View<acc_t<T>, 3> c) {
  require(groups.count == c.rows() && groups.rows() == a.rows(), "the groups of a product do not match its extents");
  grouped_sums_in(stream, groups, impl_->workspace, 1, a, b, adds ? 1 : 0, c);
}
#define FORGE_GROUPED(T)                                                                                     \
  template void Gemm::grouped_rows(Stream&, const RowGroups&, Transpose, View<const T, 2>, View<const T, 3>, \
                                   View<T, 2>, double, bool);                                                \
  template void Gemm::grouped_sums(Stream&, const RowGroups&, View<const T, 2>, View<const T, 2>, bool,      \
                                   View<acc_t<T>, 3>);
FORGE_COMPUTE_TYPES(FORGE_GROUPED)
#undef FORGE_GROUPED

#define FORGE_BATCHED(T)                                                                                            \
  template void Gemm::batched_rows(Stream&, int64_t, Transpose, double, View<const T, 2>, View<const T, 3>, double, \
                                   View<T, 2>);                                                                     \
  template void Gemm::batched_sums(Stream&, int64_t, double, View<const T, 2>, View<const T, 2>, double, View<T, 3>);
FORGE_BATCHED(double)
FORGE_BATCHED(float)
#undef FORGE_BATCHED

#define FORGE_GEMM(T, TC)                                                                                              \
  template void Gemm::operator()(Stream&, Transpose, Transpose, double, View<const T, 2>, View<const T, 2>, double,    \
                                 View<TC, 2>);                                                                         \
  template void Gemm::grouped_rows(Stream&, std::span<const std::int64_t>, Transpose, double, View<const T, 2>,        \
                                   View<const T, 3>, double, View<TC, 2>);                                             \
  template void Gemm::grouped_sums(Stream&, std::span<const std::int64_t>, double, View<const T, 2>, View<const T, 2>, \
                                   double, View<TC, 3>);
FORGE_GEMM(double, double)
FORGE_GEMM(float, float)
FORGE_GEMM(bf16, bf16)
FORGE_GEMM(bf16, float)
#undef FORGE_GEMM

}  // namespace forge
