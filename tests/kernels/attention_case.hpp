#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "attention_reference.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "core/types.hpp"
#include "device/device_memory.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_tiles.hpp"

// One problem, in device memory for the kernels and in double for the reference, with the same rounded numbers.

namespace forge::reference {

// Rows of heads in device memory. The rows are `gap` values longer than needed; the gap holds NaN and must keep it.
template <class T>
struct Strided {
  std::int64_t rows, heads, columns, pitch;
  std::shared_ptr<Buffer> memory;

  Strided(std::int64_t r, std::int64_t h, std::int64_t c, std::int64_t gap)
      : rows(r),
        heads(h),
        columns(c),
        pitch(h * c + gap),
        memory(std::make_shared<Buffer>(static_cast<std::size_t>(std::max<std::int64_t>(1, r * pitch)) * sizeof(T))) {
    Stream stream;
    write(stream, std::vector<double>(static_cast<std::size_t>(rows * heads * columns), std::nan("")));
  }
  T* data() const { return reinterpret_cast<T*>(memory->data()); }
  View<T, 3> view() const { return View<T, 3>(data(), {{rows, heads, columns}}, pitch); }
  View<T, 2> matrix() const { return View<T, 2>(data(), {{rows, heads * columns}}, pitch); }

  void write(Stream& stream, const std::vector<double>& values) const {
    std::vector<T> all(static_cast<std::size_t>(rows * pitch), T(std::nan("")));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < heads * columns; ++c)
        all[static_cast<std::size_t>(r * pitch + c)] = T(values[static_cast<std::size_t>(r * heads * columns + c)]);
    copy_to_device(stream, data(), all.data(), all.size() * sizeof(T));
    stream.synchronize();
  }
  // Throws where the gap was written.
  Heads read(Stream& stream) const {
    std::vector<T> all(static_cast<std::size_t>(rows * pitch));
    copy_to_host(stream, all.data(), data(), all.size() * sizeof(T));
    stream.synchronize();
    Heads to(rows, heads, columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < pitch; ++c) {
        const double x = static_cast<double>(all[static_cast<std::size_t>(r * pitch + c)]);
        if (c < heads * columns)
          to.values[static_cast<std::size_t>(r * heads * columns + c)] = x;
        else if (!std::isnan(x))
          throw Error("a kernel wrote behind the columns of a row");
      }
    }
    return to;
  }
};

template <class I>
struct DeviceList {
  std::vector<I> host;
  std::shared_ptr<Buffer> memory;

  DeviceList(Stream& stream, std::vector<I> values)
      : host(std::move(values)), memory(std::make_shared<Buffer>(std::max<std::size_t>(1, host.size()) * sizeof(I))) {
    copy_to_device(stream, memory->data(), host.data(), host.size() * sizeof(I));
    stream.synchronize();
  }
  View<const I, 1> on_host() const {
    if (host.empty()) return {};
    return {host.data(), {{static_cast<std::int64_t>(host.size())}}};
  }
  View<const I, 1> on_device() const {
    if (host.empty()) return {};
    return {reinterpret_cast<const I*>(memory->data()), {{static_cast<std::int64_t>(host.size())}}};
  }
};

struct Sizes {
  std::int64_t B = 1, Tq = 1, Tk = 1, H = 1, K = 1, D = 8, Dv = 8;
  std::int64_t window = 0;
  bool documents = false;
  double dropout = 0;
  std::int64_t first_position = 0;  // of the queries
  bool in_order = false;            // with first position 0: the mask says that rows' numbers are their positions
  AttentionKernel kernel = AttentionKernel::cuda_cores;
  bool aligned = false;  // the gaps behind rows are multiples of 16 bytes
  double soft_cap = 0;
  CudnnAttention* cudnn = nullptr;  // the problem's rows are whole sequences

  std::int64_t gap(std::int64_t values) const { return aligned ? 8 * values : values; }
};

// Uniform in (−1, 1), rounded to T.
template <class T>
Heads random_heads(std::int64_t rows, std::int64_t heads, std::int64_t columns, std::uint64_t key) {
  Heads x(rows, heads, columns);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto w = philox(key, i, 0);
    x.values[i] = static_cast<double>(T(2 * uniform(w[0], w[1]) - 1));
  }
  return x;
}

template <class T>
struct Case {
  using A = acc_t<T>;

  Sizes n;
  Stream stream;
  DeviceList<std::int32_t> position_q, position_k, document_q, document_k;
  DeviceList<std::int64_t> samples;
  Inputs in;
  Heads d_o;
  Strided<T> q, k, v, o, u, d_q, d_k, d_v;
  Strided<A> lse, delta, sums, peak;
  Buffer tiles;  // of the threads of a CPU

  explicit Case(const Sizes& s, int threads = 1, Stream::Kind kind = Stream::Kind::Inline)
      : n(s),
        stream(threads, kind),
        position_q(stream, positions(s.B, s.Tq, s.first_position)),
        position_k(stream, positions(s.B, s.Tk, 0)),
        document_q(stream, documents(s, s.Tq, s.first_position)),
        document_k(stream, documents(s, s.Tk, 0)),
        samples(stream, sample_list(s)),
        in{{s.B, s.Tq, s.Tk, 1.5 / std::sqrt(static_cast<double>(s.D)), s.dropout, 99, samples.on_host(), 0, s.kernel,
            s.soft_cap},
           {position_q.on_host(), position_k.on_host(), document_q.on_host(), document_k.on_host(), s.window},
           random_heads<T>(s.B * s.Tq, s.H, s.D, 1),
           random_heads<T>(s.B * s.Tk, s.K, s.D, 2),
           random_heads<T>(s.B * s.Tk, s.K, s.Dv, 3)},
        d_o(random_heads<T>(s.B * s.Tq, s.H, s.Dv, 4)),
        q(s.B * s.Tq, s.H, s.D, s.gap(3)),
        k(s.B * s.Tk, s.K, s.D, s.gap(5)),
        v(s.B * s.Tk, s.K, s.Dv, s.gap(1)),
        o(s.B * s.Tq, s.H, s.Dv, s.gap(2)),
        u(s.B * s.Tq, s.H, s.Dv, 0),
        d_q(s.B * s.Tq, s.H, s.D, s.gap(7)),
        d_k(s.B * s.Tk, s.K, s.D, s.gap(4)),
        d_v(s.B * s.Tk, s.K, s.Dv, s.gap(1)),
        lse(s.B * s.Tq, s.H, 1, 0),
        delta(s.B * s.Tq, s.H, 1, 0),
        sums(s.B * s.Tq, s.H, s.D, 0),
        peak(s.B * s.Tq, s.H, 1, 0),
        tiles(static_cast<std::size_t>(threads) * attention_thread_bytes<A>(s.D, s.Dv)) {
    q.write(stream, in.q.values);
    k.write(stream, in.k.values);
    v.write(stream, in.v.values);
    u.write(stream, d_o.values);
  }

  AttentionShape shape() const {
    AttentionShape s = in.shape;
    s.samples = samples.on_device();
    s.cudnn = n.cudnn;
    s.workspace = tiles.data();
    s.workspace_bytes = tiles.bytes();
    return s;
  }
  AttentionMask mask() const {
    return {position_q.on_device(),
            position_k.on_device(),
            document_q.on_device(),
            document_k.on_device(),
            n.window,
            n.in_order};
  }

  void run_forward() {
    attention_forward<T>(stream, shape(), mask(), q.view(), k.view(), v.view(), o.view(), lse.matrix());
  }
  // And the largest scores of rows.
  void run_forward_with_peaks() {
    attention_forward<T>(stream, shape(), mask(), q.view(), k.view(), v.view(), o.view(), lse.matrix(), peak.matrix());
  }
  void run_backward() {
    attention_delta<T>(stream, u.view(), o.view(), delta.matrix());
    attention_backward<T>(stream, shape(), mask(), u.view(), q.view(), k.view(), v.view(), lse.matrix(), delta.matrix(),
                          d_q.view(), d_k.view(), d_v.view(), sums.view(), o.view());
  }
  Gradients gradients() { return {d_q.read(stream), d_k.read(stream), d_v.read(stream)}; }

 private:
  static std::vector<std::int32_t> positions(std::int64_t B, std::int64_t count, std::int64_t first) {
    std::vector<std::int32_t> p;
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t t = 0; t < count; ++t) p.push_back(static_cast<std::int32_t>(first + t));
    return p;
  }
  // Uneven documents of 1 to 40 tokens.
  static std::vector<std::int32_t> documents(const Sizes& s, std::int64_t count, std::int64_t first) {
    std::vector<std::int32_t> d;
    if (!s.documents) return d;
    for (std::int64_t b = 0; b < s.B; ++b) {
      std::int64_t left = 0, number = 1000 * b;
      for (std::int64_t t = 0; t < first + count; ++t, --left) {
        if (left == 0) left = 1 + static_cast<std::int64_t>(philox(5, static_cast<std::uint64_t>(++number), 0)[0] % 40);
        if (t >= first) d.push_back(static_cast<std::int32_t>(number));
      }
    }
    return d;
  }
  static std::vector<std::int64_t> sample_list(const Sizes& s) {
    std::vector<std::int64_t> list;
    for (std::int64_t b = 0; b < s.B; ++b) list.insert(list.end(), static_cast<std::size_t>(s.Tq), 7000000000 + b);
    return list;
  }
};

// Unit roundoffs.
template <class T>
constexpr double roundoff() {
  return std::is_same_v<T, double> ? 0x1p-53 : std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;
}

// How far a sum may be off, relative to its magnitude. A term's factors are: a probability 2^(score − lse), wrong by
// the rounding of its exponent; a product over a head and a sum over keys or queries, wrong by their length; and values
// that are rounded to T, at most twice on the way: the result, and the scores as tensor cores take them.
// 2: the normalised probability is a quotient.
template <class T>
double relative_error(const Sizes& n, double score_magnitude) {
  const double u = roundoff<acc_t<T>>();
  const double largest_score = score_magnitude + std::log(static_cast<double>(n.Tk) + 1);
  const double exponent = u * (static_cast<double>(n.D) + 8) * (largest_score + 2);
  const double lengths = static_cast<double>(n.Tk + n.Tq * n.H / n.K + n.D + n.Dv) + 16;
  return 2 * exponent + 2 * u * lengths + (2 + roundoff<T>()) * roundoff<T>();
}

}  // namespace forge::reference
