#include "kernels/gemm/gemm_packed.hpp"

#include <algorithm>

#include "device/isa.hpp"

namespace forge {

namespace {

using std::int64_t;

constexpr int64_t depth = 256;   // rows of a packed panel: K is summed in blocks of this many, always
constexpr int max_columns = 32;  // float lanes of two of the widest vectors
constexpr std::size_t line = 64;

// Everything that a thread needs; plain data, so that one loop nest serves every vector path.
template <class T, class A>
struct Problem {
  int64_t m, n, k;
  A alpha, beta;
  Operand<T> a, b;
  A* c;
  int64_t pitch;
  A* packed;        // columns of B, `depth` deep
  int64_t columns;  // of B packed at a time, a multiple of the block's
};

template <class A, class T>
FORGE_INLINE A widen(T value) {
  return static_cast<A>(value);
}

// to[q * width + i] = from[i * pitch + q] for i, q < 4, in registers.
template <int width, class A, class T>
FORGE_INLINE void transpose4(const T* from, int64_t pitch, A* to) {
  typedef A Four __attribute__((vector_size(4 * sizeof(A)), aligned(alignof(A)), may_alias));
  Four r[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const T* row = from + i * pitch;
    r[i] = Four{widen<A>(row[0]), widen<A>(row[1]), widen<A>(row[2]), widen<A>(row[3])};
  }
  const Four a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Four c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7), d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  *reinterpret_cast<Four*>(to) = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + width) = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  *reinterpret_cast<Four*>(to + 2 * width) = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + 3 * width) = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// panel[p * width + i] = x(i0 + i, p0 + p) for i < width, p < count; zero behind the last of `extent` rows.
template <int width, class A, class T>
FORGE_INLINE void pack(Operand<T> x, int64_t i0, int64_t extent, int64_t p0, int64_t count, A* panel) {
  const T* from = x.data + i0 * x.row + p0 * x.column;
  const int64_t rows = std::min<int64_t>(width, extent - i0);
  if (rows == width && x.row == 1) {
    for (int64_t p = 0; p < count; ++p)
      for (int i = 0; i < width; ++i) panel[p * width + i] = widen<A>(from[p * x.column + i]);
    return;
  }
  if (rows < width)
    for (int64_t j = 0; j < count * width; ++j) panel[j] = A(0);
  if (x.column != 1) {
    for (int64_t p = 0; p < count; ++p)
      for (int64_t i = 0; i < rows; ++i) panel[p * width + i] = widen<A>(from[i * x.row + p * x.column]);
    return;
  }
  const int64_t fours = count / 4 * 4;
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    for (int64_t p = 0; p < fours; p += 4) transpose4<width>(from + i * x.row + p, x.row, panel + p * width + i);
    for (int64_t q = i; q < i + 4; ++q)
      for (int64_t p = fours; p < count; ++p) panel[p * width + q] = widen<A>(from[q * x.row + p]);
  }
  for (; i < rows; ++i)
    for (int64_t p = 0; p < count; ++p) panel[p * width + i] = widen<A>(from[i * x.row + p]);
}

// One block of C: `rows` x 2 vectors of `bytes` bytes in registers.
template <int bytes, int rows, class A>
FORGE_INLINE void block(int64_t count, const A* a, const A* b, A alpha, A beta, A* c, int64_t pitch, int64_t height,
                        int64_t width) {
  typedef A Vector __attribute__((vector_size(bytes), aligned(alignof(A)), may_alias));
  constexpr int lanes = bytes / sizeof(A);
  Vector sum0[rows] = {}, sum1[rows] = {};
  for (int i = 0; i < std::min<int64_t>(rows, height); ++i) {
    __builtin_prefetch(c + i * pitch, 1);
    __builtin_prefetch(c + i * pitch + lanes, 1);
  }
#pragma GCC unroll 4
  for (int64_t p = 0; p < count; ++p) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b), b1 = *reinterpret_cast<const Vector*>(b + lanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      sum0[i] += a[i] * b0;
      sum1[i] += a[i] * b1;
    }
    a += rows;
    b += 2 * lanes;
  }
  if (height >= rows && width >= 2 * lanes) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      Vector* to = reinterpret_cast<Vector*>(c + i * pitch);
      if (beta == A(0)) {
        to[0] = alpha * sum0[i];
        to[1] = alpha * sum1[i];
      } else {
        to[0] = beta * to[0] + alpha * sum0[i];
        to[1] = beta * to[1] + alpha * sum1[i];
      }
    }
    return;
  }
  A edge[rows * 2 * lanes];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    *reinterpret_cast<Vector*>(edge + i * 2 * lanes) = sum0[i];
    *reinterpret_cast<Vector*>(edge + i * 2 * lanes + lanes) = sum1[i];
  }
  for (int i = 0; i < std::min<int64_t>(rows, height); ++i)
    for (int j = 0; j < std::min<int64_t>(2 * lanes, width); ++j) {
      A* to = c + i * pitch + j;
      const A value = alpha * edge[i * 2 * lanes + j];
      *to = beta == A(0) ? value : beta * *to + value;
    }
}

template <int bytes, int rows, class T, class A>
struct Path {
  static constexpr int columns = 2 * bytes / static_cast<int>(sizeof(A));

  // Packs panel number `panel` of columns [j0, …) and rows [p0, p0 + count) of B.
  static FORGE_INLINE void pack_b(const Problem<T, A>& g, int64_t j0, int64_t p0, int64_t count, int64_t panel) {
    const Operand<T> transposed{g.b.data, g.b.column, g.b.row};
    pack<columns>(transposed, j0 + panel * columns, g.n, p0, count, g.packed + panel * columns * depth);
  }

  // Rows [i0, i0 + rows) of C, panels [begin, end) of the packed columns from j0 on.
  static FORGE_INLINE void multiply(const Problem<T, A>& g, int64_t i0, int64_t j0, int64_t p0, int64_t count,
                                    int64_t begin, int64_t end) {
    alignas(line) A panel[rows * depth];
    pack<rows>(g.a, i0, g.m, p0, count, panel);
    const A beta = p0 == 0 ? g.beta : A(1);
    for (int64_t q = begin; q < end; ++q) {
      const int64_t j = j0 + q * columns;
      block<bytes, rows>(count, panel, g.packed + q * columns * depth, g.alpha, beta, g.c + i0 * g.pitch + j, g.pitch,
                         g.m - i0, g.n - j);
    }
  }
};

// The two loop bodies of each vector path; flatten pulls the templates into the function that has the target.
template <class T, class A>
struct Bodies {
  int rows, columns;
  void (*pack_b)(const Problem<T, A>&, int64_t, int64_t, int64_t, int64_t);
  void (*multiply)(const Problem<T, A>&, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
};

#define FORGE_GEMM_PATH(name, target, bytes, rows_)                                                                \
  template <class T, class A>                                                                                      \
  __attribute__((flatten))                                                                                         \
  target void name##_pack_b(const Problem<T, A>& g, int64_t j0, int64_t p0, int64_t count, int64_t panel) {        \
    Path<bytes, rows_, T, A>::pack_b(g, j0, p0, count, panel);                                                     \
  }                                                                                                                \
  template <class T, class A>                                                                                      \
  __attribute__((flatten)) target void name##_multiply(const Problem<T, A>& g, int64_t i0, int64_t j0, int64_t p0, \
                                                       int64_t count, int64_t begin, int64_t end) {                \
    Path<bytes, rows_, T, A>::multiply(g, i0, j0, p0, count, begin, end);                                          \
  }                                                                                                                \
  template <class T, class A>                                                                                      \
  Bodies<T, A> name##_bodies() {                                                                                   \
    return {rows_, Path<bytes, rows_, T, A>::columns, name##_pack_b<T, A>, name##_multiply<T, A>};                 \
  }

FORGE_GEMM_PATH(plain, , 16, 4)
#if defined(__x86_64__)
FORGE_GEMM_PATH(avx2, FORGE_TARGET_AVX2, 32, 6)
FORGE_GEMM_PATH(avx512, FORGE_TARGET_AVX512, 64, 12)
#endif
#undef FORGE_GEMM_PATH

template <class T, class A>
Bodies<T, A> bodies() {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return avx512_bodies<T, A>();
  if (host_isa() == Isa::avx2) return avx2_bodies<T, A>();
#endif
  return plain_bodies<T, A>();
}

// `each(count, body)` shares out a loop among the threads that run this, and waits for all of them: panels of B are
// packed together, then the blocks of C are computed.
template <class T, class A, class Each>
void run(const Problem<T, A>& g, const Bodies<T, A>& body, int threads, const Each& each) {
  const int64_t row_blocks = (g.m + body.rows - 1) / body.rows;
  for (int64_t j0 = 0; j0 < g.n; j0 += g.columns) {
    const int64_t panels = (std::min(g.columns, g.n - j0) + body.columns - 1) / body.columns;
    // With few rows the panels are shared out too; each piece packs its own copy of A's panel.
    const int64_t pieces = threads == 1 ? 1 : std::min(panels, (4 * threads + row_blocks - 1) / row_blocks);
    for (int64_t p0 = 0; p0 < g.k; p0 += depth) {
      const int64_t count = std::min(depth, g.k - p0);
      each(panels, [&](int64_t q) { body.pack_b(g, j0, p0, count, q); });
      each(row_blocks * pieces, [&](int64_t t) {
        body.multiply(g, t / pieces * body.rows, j0, p0, count, panels * (t % pieces) / pieces,
                      panels * (t % pieces + 1) / pieces);
      });
    }
  }
}

template <class A>
void scale(int64_t m, int64_t n, A beta, A* c, int64_t pitch) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * pitch + j] = beta == A(0) ? A(0) : beta * c[i * pitch + j];
}

}  // namespace

template <class T, class A>
void packed_gemm(int threads, int64_t m, int64_t n, int64_t k, A alpha, Operand<T> a, Operand<T> b, A beta, A* c,
                 int64_t pitch, void* workspace, std::size_t workspace_bytes) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) return scale(m, n, beta, c, pitch);
  const Bodies<T, A> body = bodies<T, A>();
  alignas(line) A small[max_columns * sizeof(float) / sizeof(A) * depth];
  const int64_t panel = body.columns * depth;
  const int64_t fitting = static_cast<int64_t>(workspace_bytes / sizeof(A)) / panel;
  const int64_t cached = (1 << 20) / static_cast<int64_t>(sizeof(A)) / panel;
  Problem<T, A> g{m, n, k, alpha, beta, a, b, c, pitch, small, body.columns};
  if (fitting > 0) {
    g.packed = static_cast<A*>(workspace);
    g.columns = std::min(fitting, cached) * body.columns;
  }
  // One thread may be a thread of a parallel region of the caller's: no worksharing there.
  if (threads == 1 || m * n * k < 32 * 32 * 32)
    return run(g, body, 1, [](int64_t loop, const auto& f) {
      for (int64_t i = 0; i < loop; ++i) f(i);
    });
#pragma omp parallel num_threads(threads)
  run(g, body, threads, [](int64_t loop, const auto& f) {
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < loop; ++i) f(i);
  });
}

FORGE_INSTANTIATE_ONE(packed_gemm<double, double>);
FORGE_INSTANTIATE_ONE(packed_gemm<float, float>);
FORGE_INSTANTIATE_ONE(packed_gemm<bf16, float>);

}  // namespace forge
