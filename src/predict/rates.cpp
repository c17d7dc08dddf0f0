#include "predict/rates.hpp"

#include <algorithm>
#include <cmath>

#include "core/median.hpp"
#include "core/to_size.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_tiles.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/kernels.hpp"
#include "predict/rate_timing.hpp"
#include "predict/row_rates.hpp"

namespace forge {

namespace {

// Extents of products: rows of 1,024 numbers lie a multiple of 4 KiB apart, as those of many models do, and are read
// more slowly than rows of 704.
constexpr std::int64_t extents[] = {16, 64, 256, 704, 1024};
constexpr std::int64_t lengths[] = {64, 256, 1024};  // of attention

// A linear layer's products: y = x Wᵀ, dx = dy W and dW += dyᵀ x, each call with other operands of the same buffers:
// what a step reads is not what the call before has read.
template <class T>
class ProductBench {
 public:
  ProductBench(Stream& stream, Heartbeat& heartbeat)
      : stream_(stream),
        heartbeat_(heartbeat),
        values_(stream),
        workspace_(values_.list<std::uint8_t>(workspace_bytes)),
        gemm_(workspace_.data, workspace_bytes) {
    for (View<T, 1>* v : {&a_, &b_, &c_}) *v = values_.list<T>(buffer_elements);
    sums_ = values_.list<acc_t<T>>(buffer_elements);
  }

  ProductTable table() {
    ProductTable table;
    for (const std::int64_t e : extents)
      for (auto* list : {&table.m, &table.n, &table.k}) list->push_back(static_cast<double>(e));
    for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient, ProductOf::weight_gradient})
      for (const std::int64_t m : extents)
        for (const std::int64_t n : extents)
          for (const std::int64_t k : extents) table.rates[to_size(of)].push_back(rate(of, m, n, k));
    return table;
  }

 private:
  static constexpr std::size_t workspace_bytes = 64u << 20;
  static constexpr std::int64_t buffer_elements = 4 << 20;  // of four of the largest operands

  // The i-th operand of so many rows in a buffer, which begins again behind its last.
  template <class P>
  static View<P, 2> cut(const View<P, 1>& buffer, int i, std::int64_t rows, std::int64_t columns) {
    const std::int64_t size = rows * columns;
    return View<P, 2>(buffer.data + i % (buffer.size() / size) * size, {{rows, columns}});
  }
  // C(m,n) = or += A(m,k) B(k,n).
  void run(int i, ProductOf of, std::int64_t m, std::int64_t n, std::int64_t k) {
    using C = View<const T, 2>;
    const bool sums = of == ProductOf::weight_gradient;
    const C a(sums ? cut(a_, i, k, m) : cut(a_, i, m, k)),
        b(of == ProductOf::output ? cut(b_, i, n, k) : cut(b_, i, k, n));
    const Transpose ta = sums ? Transpose::yes : Transpose::no,
                    tb = of == ProductOf::output ? Transpose::yes : Transpose::no;
    if (sums)
      gemm_(stream_, ta, tb, 1.0, a, b, 1.0, cut(sums_, i, m, n));
    else
      gemm_(stream_, ta, tb, 1.0, a, b, 0.0, cut(c_, i, m, n));
  }
  double rate(ProductOf of, std::int64_t m, std::int64_t n, std::int64_t k) {
    const double seconds = seconds_of(stream_, [&](int i) { run(i, of, m, n, k); });
    heartbeat_.beat();
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds;
  }

  Stream& stream_;
  Heartbeat& heartbeat_;
  Values values_;
  View<std::uint8_t, 1> workspace_;
  Gemm gemm_;
  View<T, 1> a_, b_, c_;
  View<acc_t<T>, 1> sums_;
};

template <class T>
AttentionRates measure_attention(Stream& stream, Heartbeat& heartbeat) {
  using A = acc_t<T>;
  constexpr std::int64_t heads = 4, size = 64, rows = 1024;
  AttentionRates rates;
  for (const std::int64_t length : lengths) {
    Values values(stream);
    const std::int64_t sequences = rows / length;
    const auto cube = [&] { return values.take<T, 3>({{rows, heads, size}}); };
    const auto q = cube(), k = cube(), v = cube(), o = cube(), d_o = cube(), d_q = cube(), d_k = cube(), d_v = cube();
    const auto lse = values.matrix<A>(rows, heads), delta = values.matrix<A>(rows, heads);
    const auto sums = values.take<A, 3>({{rows, heads, size}});
    const auto positions = values.counting(rows, length);
    AttentionShape shape{sequences, length, length, 1 / std::sqrt(double{size}), 0, 0, {}, 0};
    shape.workspace_bytes = to_size(stream.threads()) * attention_thread_bytes<A>(size, size);
    const auto tiles = values.list<std::uint8_t>(static_cast<std::int64_t>(shape.workspace_bytes));
    shape.workspace = reinterpret_cast<std::byte*>(tiles.data);
    const AttentionMask mask{positions, positions, {}, {}, 0, true};
    const double forward = seconds_of(stream, [&](int) { attention_forward<T>(stream, shape, mask, q, k, v, o, lse); });
    const double backward = seconds_of(stream, [&](int) {
      attention_backward<T>(stream, shape, mask, d_o, q, k, v, lse, delta, d_q, d_k, d_v, sums);
    });
    const double pairs = static_cast<double>(sequences * heads) * static_cast<double>(length * (length + 1)) / 2;
    rates.tokens.push_back(static_cast<double>(length));
    rates.forward.push_back(pairs * 2 * 2 * size / forward);
    rates.backward.push_back(pairs * 2 * 5 * size / backward);
    heartbeat.beat();
  }
  return rates;
}

// Of arrays that no cache holds.
KernelRates measure_copy(Stream& stream, double launch) {
  constexpr std::int64_t rows = 1 << 15, columns = 512;
  Values values(stream);
  const auto from = values.matrix<float>(rows, columns), to = values.matrix<float>(rows, columns);
  const double seconds = seconds_of(stream, [&](int) { copy_rows<float>(stream, View<const float, 2>(from), to); });
  return {launch, 2.0 * sizeof(float) * rows * columns / seconds};
}

template <class T>
MeasuredRates measure(int threads, Heartbeat& heartbeat) {
  Stream stream(threads);
  MeasuredRates rates;
  rates.products = ProductBench<T>(stream, heartbeat).table();
  rates.attention = measure_attention<T>(stream, heartbeat);
  rates.kernels = measure_row_kernels(stream, dtype_of<T>, heartbeat);
  rates.copy = measure_copy(stream, rates.kernels.front().second.launch);
  return rates;
}

}  // namespace

MeasuredRates measure_rates(DType type, int threads, Heartbeat& heartbeat) {
  switch (type) {
    case DType::f64:
      return measure<double>(threads, heartbeat);
    case DType::bf16:
      return measure<bf16>(threads, heartbeat);
    default:
      return measure<float>(threads, heartbeat);
  }
}

}  // namespace forge
