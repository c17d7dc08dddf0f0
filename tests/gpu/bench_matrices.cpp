#include "bench.hpp"
#include "optim/newton_schulz.hpp"

namespace forge::bench {

namespace {

// A stack of matrices (m, n), m <= n.
struct Stack {
  const char* name;
  int64_t matrices, m, n;
};

// The products of Newton and Schulz's iteration by themselves, on numbers that stay.
template <class T>
void run_products(const Bench& b, const Stack& s, const MatrixBuffers<T>& buffers,
                  const std::vector<int64_t>& offsets) {
  const auto product = [&](View<T, 1> a, Transpose tb, View<T, 1> with, View<T, 1> c, int64_t k, int64_t n) {
    const View<const T, 2> rows(a.data, {{s.matrices * s.m, k}});
    const View<T, 2> result(c.data, {{s.matrices * s.m, n}});
    const int64_t height = tb == Transpose::yes ? n : k, width = tb == Transpose::yes ? k : n;
    if (s.matrices == 1)
      b.gemm(b.stream, Transpose::no, tb, 1.0, rows, View<const T, 2>(with.data, {{height, width}}), 0.0, result);
    else
      b.gemm.grouped_rows(b.stream, offsets, tb, 1.0, rows, View<const T, 3>(with.data, {{s.matrices, height, width}}),
                          0.0, result);
  };
  for (int step = 0; step < newton_schulz_steps; ++step) {
    product(buffers.x, Transpose::yes, buffers.x, buffers.gram, s.n, s.m);
    product(buffers.gram, Transpose::no, buffers.gram, buffers.polynomial, s.m, s.m);
    product(buffers.polynomial, Transpose::no, buffers.x, buffers.y, s.m, s.n);
  }
}

template <class T>
void bench_stack(const Bench& b, const Stack& s) {
  Memory memory(b.stream);
  const int64_t elements = s.matrices * s.m * s.n, squares = s.matrices * s.m * s.m;
  MatrixBuffers<T> buffers;
  buffers.x = memory.random<T, 1>({{elements}});
  buffers.y = memory.random<T, 1>({{elements}});
  buffers.gram = memory.random<T, 1>({{squares}}, 0.01);
  buffers.polynomial = memory.random<T, 1>({{squares}}, 0.01);
  buffers.row_squares = memory.zeros<double, 1>({{s.matrices * s.m}});
  buffers.norms = memory.zeros<double, 1>({{s.matrices}});
  std::vector<int64_t> offsets;
  for (int64_t g = 0; g <= s.matrices; ++g) offsets.push_back(g * s.m);
  const std::string sizes = word("matrices", s.matrices) + " " + word("m", s.m) + " " + word("n", s.n);
  const auto m = static_cast<double>(s.m), n = static_cast<double>(s.n);
  const double flop = newton_schulz_steps * static_cast<double>(s.matrices) * (4 * m * m * n + 2 * m * m * m);
  print_row("matrices", std::string(s.name) + ", products alone", sizes,
            seconds_of(b, [&] { run_products(b, s, buffers, offsets); }), flop, 0);
  fill_random(b.stream, buffers.x, 1, 1.0);
  NewtonSchulz<T> newton_schulz(b.gemm, s.matrices);
  print_row("matrices", std::string(s.name) + ", Newton-Schulz", sizes,
            seconds_of(b, [&] { newton_schulz(b.stream, buffers, s.matrices, s.m, s.n); }), flop, 0);
}

}  // namespace

// Muon's iteration beside its products: matrices of a 7B layer and of Qwen3-30B-A3B's experts.
void bench_matrices(const Bench& b) {
  for (const Stack& s : {Stack{"7B out", 1, b.size(4096, 24), b.size(4096, 24)},
                         Stack{"7B down", 1, b.size(4096, 24), b.size(14336, 40)},
                         Stack{"Qwen3-30B gates", b.size(16, 3), b.size(768, 16), b.size(2048, 24)}})
    bench_stack<bf16>(b, s);
}

// The same of the quickstart's in fp32, for processors: real sizes, timed as such.
void bench_quickstart(const Bench& b) {
  const Bench timed{b.stream, b.gemm, false};
  for (const Stack& s : {Stack{"out", 1, 256, 256}, Stack{"down", 1, 256, 704}, Stack{"six of down", 6, 256, 704}})
    bench_stack<float>(timed, s);
}

}  // namespace forge::bench
