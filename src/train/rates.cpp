#include "train/rates.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "core/median.hpp"
#include "core/to_size.hpp"
#include "device/memory.hpp"
#include "device/random_values.hpp"
#include "kernels/attention.hpp"
#include "kernels/gemm.hpp"
#include "kernels/kernels.hpp"
#include "kernels/moe.hpp"

namespace forge {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t extents[] = {16, 64, 256, 1024};  // of products
constexpr std::int64_t lengths[] = {64, 256, 1024};      // of attention
constexpr std::int64_t few_rows = 32, many_rows = 2048, columns = 512;
constexpr std::int64_t experts = 16, chosen = 2;  // of routers

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds by the clock, or, of a single thread, of its processor: other programs take nothing of that.
double now(const Stream& stream) {
  timespec t{};
  clock_gettime(stream.threads() == 1 && !stream.native() ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Seconds of a call: the median of at least five, and of as many as fit 10 ms; the first is not counted.
template <class Work>
double seconds_of(Stream& stream, const Work& work) {
  std::vector<double> times;
  double spent = 0;
  work(0);
  stream.synchronize();
  for (int i = 1; i <= 200 && (i <= 5 || spent < 0.01); ++i) {
    const double start = now(stream);
    work(i);
    stream.synchronize();
    times.push_back(now(stream) - start);
    spent += times.back();
  }
  return median(std::move(times));
}

// Memory that lives as long as the measurement.
class Values {
 public:
  explicit Values(Stream& stream) : stream_(stream) {}

  template <class T, int N>
  View<T, N> take(const Array<std::int64_t, N>& shape) {
    std::int64_t n = 1;
    for (const std::int64_t e : shape) n *= e;
    buffers_.emplace_back(to_size(n) * sizeof(T));
    const View<T, N> view(reinterpret_cast<T*>(buffers_.back().data()), shape);
    if constexpr (std::is_integral_v<T>)
      fill_zero(stream_, view.data, buffers_.back().bytes());
    else
      fill_random(stream_, view, buffers_.size(), 0.05);
    stream_.synchronize();
    return view;
  }
  template <class T>
  View<T, 2> matrix(std::int64_t rows, std::int64_t width) {
    return take<T, 2>({{rows, width}});
  }
  template <class T>
  View<T, 1> list(std::int64_t n) {
    return take<T, 1>({{n}});
  }
  // 0, 1, …, period − 1, 0, …
  View<std::int32_t, 1> counting(std::int64_t n, std::int64_t period) {
    const auto view = list<std::int32_t>(n);
    std::vector<std::int32_t> values(to_size(n));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % period);
    copy_to_device(stream_, view.data, values.data(), values.size() * sizeof(std::int32_t));
    stream_.synchronize();
    return view;
  }

 private:
  Stream& stream_;
  std::vector<Buffer> buffers_;
};

// A linear layer's product, by turns with four sets of operands: what a step reads is not what the call before has
// read.
template <class T>
ProductTable measure_products(Stream& stream, Heartbeat& heartbeat) {
  constexpr std::size_t workspace_bytes = 64u << 20;
  Values values(stream);
  const auto workspace = values.list<std::uint8_t>(workspace_bytes);
  Gemm gemm(workspace.data, workspace_bytes);
  constexpr int sets = 4;
  constexpr std::int64_t most = extents[std::size(extents) - 1];
  std::vector<View<T, 2>> a, b, c;
  for (int i = 0; i < sets; ++i) {
    a.push_back(values.matrix<T>(most, most));
    b.push_back(values.matrix<T>(most, most));
    c.push_back(values.matrix<T>(most, most));
  }
  ProductTable table;
  for (const std::int64_t e : extents)
    for (auto* list : {&table.m, &table.n, &table.k}) list->push_back(static_cast<double>(e));
  for (const std::int64_t m : extents)
    for (const std::int64_t n : extents)
      for (const std::int64_t k : extents) {
        const auto cut = [](const View<T, 2>& v, std::int64_t rows, std::int64_t width) {
          return View<T, 2>(v.data, {{rows, width}});
        };
        const double seconds = seconds_of(stream, [&](int i) {
          const auto s = to_size(i % sets);
          gemm(stream, Transpose::no, Transpose::yes, 1.0, View<const T, 2>(cut(a[s], m, k)),
               View<const T, 2>(cut(b[s], n, k)), 0.0, cut(c[s], m, n));
        });
        table.rate.push_back(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds);
        heartbeat.beat();
      }
  return table;
}

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
    const AttentionShape shape{sequences, length, length, 1 / std::sqrt(double{size}), 0, 0, {}, 0};
    const AttentionMask mask{positions, positions, {}, {}};
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

// A kernel over rows: what it takes with few and with many of them, and its bytes a row.
struct RowCase {
  std::string name;
  double bytes;
  std::function<void(std::int64_t rows)> run;
};

template <class T>
std::vector<RowCase> row_cases(Stream& stream, Values& values) {
  using A = acc_t<T>;
  constexpr double t = sizeof(T), a = sizeof(A);
  const auto matrix = [&](std::int64_t width) { return values.matrix<T>(many_rows, width); };
  const auto x = matrix(columns), y = matrix(columns), z = matrix(columns), second = matrix(columns),
             wide = matrix(2 * columns);
  const auto w = values.list<T>(columns);
  const auto rstd = values.list<A>(many_rows), dw = values.list<A>(columns);
  const auto partial = values.matrix<A>(norm_backward_chunks(many_rows), columns);
  const auto logits = values.matrix<A>(many_rows, columns);
  const auto loss = values.list<A>(many_rows), squares = values.list<A>(many_rows);
  const auto numbers = values.counting(many_rows, many_rows);
  const auto labels = values.list<std::int32_t>(many_rows);
  const auto angles = values.matrix<A>(many_rows, 32);
  const auto delta = values.matrix<A>(many_rows, columns / 64);
  const auto place = View<std::int32_t, 2>(numbers.data, {{many_rows, 1}});
  const auto table = values.matrix<A>(many_rows, columns);
  const auto top = []<class P>(const View<P, 2>& v, std::int64_t rows) {
    return View<P, 2>(v.data, {{rows, v.columns()}});
  };
  const auto head = []<class P>(const View<P, 1>& v, std::int64_t rows) { return v.slice(0, rows); };
  const auto cube = [](const View<T, 2>& v, std::int64_t rows) {
    return View<T, 3>(v.data, {{rows, columns / 64, 64}});
  };
  using C = View<const T, 2>;
  std::vector<RowCase> list;
  const auto add = [&](const char* name, double bytes, auto run) { list.push_back({name, bytes * columns, run}); };
  add("copy_rows", 2 * t, [=, &stream](std::int64_t r) { copy_rows<T>(stream, C(top(x, r)), top(y, r)); });
  add("norm_forward", 2 * t,
      [=, &stream](std::int64_t r) { rmsnorm_forward<T>(stream, top(x, r), w, 1e-5, top(y, r), head(rstd, r)); });
  add("norm_backward", 4 * t, [=, &stream](std::int64_t r) {
    rmsnorm_backward<T>(stream, top(y, r), top(x, r), w, head(rstd, r), C(top(z, r)), top(z, r), partial, dw);
  });
  add("residual_norm_forward", 4 * t, [=, &stream](std::int64_t r) {
    residual_rmsnorm_forward<T>(stream, C(top(x, r)), top(y, r), w, 1e-5, top(z, r), top(second, r), head(rstd, r));
  });
  add("residual_add", 3 * t,
      [=, &stream](std::int64_t r) { residual_add<T>(stream, top(x, r), top(y, r), top(z, r), Dropout{}); });
  add("swiglu_forward", 3 * t, [=, &stream](std::int64_t r) { swiglu_forward<T>(stream, top(wide, r), top(y, r)); });
  add("swiglu_backward", 5 * t,
      [=, &stream](std::int64_t r) { swiglu_backward<T>(stream, top(wide, r), top(y, r), top(wide, r)); });
  add("rotary", 2 * t,
      [=, &stream](std::int64_t r) { rotary<T>(stream, cube(x, r), head(numbers, r), angles, angles, false); });
  add("cross_entropy", a + t, [=, &stream](std::int64_t r) {
    View<T, 2> d_logits = top(y, r);
    cross_entropy<T>(stream, top(logits, r), head(labels, r), 1.0, 0.0, head(loss, r), head(squares, r), d_logits);
  });
  add("embedding_forward", 2 * t,
      [=, &stream](std::int64_t r) { embedding_forward<T>(stream, head(numbers, r), x, {}, {}, top(y, r)); });
  add("embedding_backward", t + 2 * a, [=, &stream](std::int64_t r) {
    embedding_backward<T>(stream, head(numbers, r), head(numbers, r), top(x, r), table);
  });
  add("accumulate", t + 2 * a, [=, &stream](std::int64_t r) { accumulate<T>(stream, top(x, r), top(table, r)); });
  add("attention_delta", 2 * t,
      [=, &stream](std::int64_t r) { attention_delta<T>(stream, cube(x, r), cube(y, r), top(delta, r)); });
  add("permute_rows", 2 * t,
      [=, &stream](std::int64_t r) { permute_rows<T>(stream, top(x, r), head(numbers, r), 1, top(y, r)); });
  add("unpermute_rows", 2 * t,
      [=, &stream](std::int64_t r) { unpermute_rows<T>(stream, top(x, r), top(place, r), 0, {}, false, top(y, r)); });
  add("weighted_swiglu_forward", 3 * t,
      [=, &stream](std::int64_t r) { weighted_swiglu_forward<T>(stream, top(wide, r), head(rstd, r), top(y, r)); });
  add("weighted_swiglu_backward", 5 * t, [=, &stream](std::int64_t r) {
    weighted_swiglu_backward<T>(stream, top(wide, r), head(rstd, r), top(y, r), top(wide, r), head(loss, r));
  });
  return list;
}

// Those of routers, which have few columns.
template <class A>
std::vector<RowCase> router_cases(Stream& stream, Values& values, double value_bytes) {
  constexpr double a = sizeof(A);
  const auto logits = values.matrix<A>(many_rows, experts), scores = values.matrix<A>(many_rows, experts);
  const auto d_logits = values.matrix<A>(many_rows, experts);
  const auto weights = values.matrix<A>(many_rows, chosen);
  const auto choices = values.matrix<std::int32_t>(many_rows, chosen),
             place = values.matrix<std::int32_t>(many_rows, 1);
  const auto cycle = values.counting(many_rows, experts);
  const auto order = values.list<std::int32_t>(many_rows);
  const auto workspace = values.matrix<std::int32_t>(moe_sort_rows(many_rows), experts);
  const auto counts = values.list<std::int64_t>(experts), offsets = values.list<std::int64_t>(experts + 1);
  const RouterOptions options{experts, chosen};
  const auto top = []<class P>(const View<P, 2>& v, std::int64_t rows) {
    return View<P, 2>(v.data, {{rows, v.columns()}});
  };
  std::vector<RowCase> list;
  list.push_back({"router_forward", experts * 2 * a, [=, &stream](std::int64_t r) {
                    router_forward<A>(stream, options, top(logits, r), {}, top(weights, r), top(choices, r),
                                      top(scores, r));
                  }});
  list.push_back({"router_backward", experts * (2 * a + value_bytes), [=, &stream](std::int64_t r) {
                    router_backward<A>(stream, options, top(logits, r), top(scores, r), top(choices, r),
                                       top(weights, r), {}, top(d_logits, r));
                  }});
  list.push_back({"moe_sort", 16.0, [=, &stream](std::int64_t r) {
                    moe_sort(stream, View<const std::int32_t, 2>(cycle.data, {{r, 1}}), workspace, counts, offsets,
                             order.slice(0, r), top(place, r));
                  }});
  return list;
}

// From the times of few and of many rows.
KernelRates rates_between(double few, double many, double bytes) {
  const double more = bytes * (many_rows - few_rows);
  const double bandwidth = more / std::max(many - few, 1e-9);
  return {std::max(0.0, few - bytes * few_rows / bandwidth), bandwidth};
}

template <class T>
MeasuredRates measure(int threads, Heartbeat& heartbeat) {
  Stream stream(threads);
  MeasuredRates rates;
  rates.products = measure_products<T>(stream, heartbeat);
  rates.attention = measure_attention<T>(stream, heartbeat);
  Values values(stream);
  std::vector<RowCase> kernels = row_cases<T>(stream, values);
  for (RowCase& kernel : router_cases<acc_t<T>>(stream, values, sizeof(T))) kernels.push_back(std::move(kernel));
  for (const RowCase& kernel : kernels) {
    const double few = seconds_of(stream, [&](int) { kernel.run(few_rows); });
    const double many = seconds_of(stream, [&](int) { kernel.run(many_rows); });
    rates.kernels.emplace_back(kernel.name, rates_between(few, many, kernel.bytes));
    heartbeat.beat();
  }
  rates.copy = rates.kernels.front().second;
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

namespace {

// Gives a collective `bytes` to send a rank, of doubles.
void call(Communicator& group, Stream& stream, Collective collective, std::int64_t bytes, double* in, double* out) {
  const std::int64_t n = group.size(), count = std::max<std::int64_t>(1, bytes / 8);
  const std::int64_t part = std::max<std::int64_t>(1, count / std::max<std::int64_t>(1, n - 1));
  switch (collective) {
    case Collective::all_reduce:
      return group.all_reduce(stream, in, std::max<std::int64_t>(1, count * n / (2 * (n - 1))), DType::f64);
    case Collective::all_gather:
      return group.all_gather(stream, in, out, part, DType::f64);
    case Collective::reduce_scatter:
      return group.reduce_scatter(stream, in, out, part, DType::f64);
    case Collective::broadcast:
      return group.broadcast(stream, in, count, DType::f64, 0);
    case Collective::all_to_all:
      return group.all_to_all(stream, in, out, part, DType::f64);
    case Collective::send: {
      group.group_begin();
      group.send(stream, in, count, DType::f64, static_cast<int>((group.rank() + 1) % n));
      group.receive(stream, out, count, DType::f64, static_cast<int>((group.rank() + n - 1) % n));
      return group.group_end(stream);
    }
  }
}

// The slowest rank's median.
double seconds_of_all(Communicator& group, Stream& stream, Collective collective, std::int64_t bytes, double* in,
                      double* out) {
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) {
    group.barrier();
    const auto start = Clock::now();
    call(group, stream, collective, bytes, in, out);
    stream.synchronize();
    if (i > 1) times.push_back(since(start));
  }
  double seconds = median(std::move(times));
  group.max_host({&seconds, 1});
  return seconds;
}

}  // namespace

std::vector<std::pair<Collective, ProtocolRates>> measure_collectives(Communicator& ranks, Heartbeat& heartbeat) {
  std::vector<std::pair<Collective, ProtocolRates>> list;
  if (ranks.size() == 1) return list;
  constexpr std::int64_t little = 256, much = 4 << 20;
  Stream stream;
  Values values(stream);
  const auto in = values.list<double>(2 * much / 8), out = values.list<double>(2 * much / 8 * ranks.size());
  std::vector<int> sizes;
  for (int n = 2; n < ranks.size(); n *= 2) sizes.push_back(n);
  sizes.push_back(ranks.size());
  for (int c = 0; c < collective_count; ++c) {
    const auto collective = static_cast<Collective>(c);
    std::vector<double> latencies, bandwidths;
    for (const int n : sizes) {
      const auto group = ranks.split(ranks.rank() < n ? 0 : -1, ranks.rank());
      double measured[2] = {0, 0};
      if (group) {
        measured[0] = seconds_of_all(*group, stream, collective, little, in.data, out.data);
        measured[1] = seconds_of_all(*group, stream, collective, much, in.data, out.data);
      }
      ranks.max_host({measured, 2});
      latencies.push_back(measured[0]);
      bandwidths.push_back(static_cast<double>(much) / std::max(measured[1] - measured[0], 1e-9));
      heartbeat.beat();
    }
    ProtocolRates rates;
    const double last = sizes.back(), first = sizes.front();
    rates.per_rank = last > first ? std::max(0.0, (latencies.back() - latencies.front()) / (last - first)) : 0;
    rates.latency = std::max(0.0, latencies.front() - rates.per_rank * first);
    rates.bandwidth = median(bandwidths);
    list.emplace_back(collective, rates);
  }
  return list;
}

}  // namespace forge
