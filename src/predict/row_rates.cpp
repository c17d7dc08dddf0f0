#include "predict/row_rates.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "kernels/attention/attention.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "kernels/kernels.hpp"
#include "predict/rate_timing.hpp"

namespace forge {

namespace {

constexpr std::int64_t few_rows = 32, many_rows = 2048, columns = 512;
constexpr std::int64_t experts = 16, chosen = 2;  // of routers
// Kernels run by turns with so many sets of operands, which caches don't hold together: a step reads what many others
// have run since it was written.
constexpr int sets = 8;

// A kernel over rows: what it takes with few and with many of them, and its bytes a row.
struct RowCase {
  std::string name;
  double bytes;
  std::function<void(std::int64_t rows)> run;
};

constexpr auto top = []<class P>(const View<P, 2>& v, std::int64_t rows) {
  return View<P, 2>(v.data, {{rows, v.columns()}});
};
constexpr auto head = []<class P>(const View<P, 1>& v, std::int64_t rows) { return v.slice(0, rows); };
constexpr auto cube = []<class P>(const View<P, 2>& v, std::int64_t rows) {
  return View<P, 3>(v.data, {{rows, columns / 64, 64}});
};

// What the kernels read and write.
template <class T>
struct RowOperands {
  using A = acc_t<T>;
  explicit RowOperands(Values& values) : values(values) {}
  View<T, 2> matrix(std::int64_t width) { return values.matrix<T>(many_rows, width); }
  View<A, 2> sums(std::int64_t width) { return values.matrix<A>(many_rows, width); }
  View<A, 1> list(std::int64_t n) { return values.list<A>(n); }

  Values& values;
  View<T, 2> x = matrix(columns), y = matrix(columns), z = matrix(columns), second = matrix(columns),
             wide = matrix(2 * columns);
  View<T, 1> w = values.list<T>(columns);
  View<A, 1> rstd = list(many_rows), dw = list(columns), loss = list(many_rows), squares = list(many_rows);
  View<A, 2> partial = values.matrix<A>(norm_backward_chunks(many_rows), columns), logits = sums(columns),
             angles = sums(32), delta = sums(columns / 64), table = sums(columns);
  View<std::int32_t, 1> numbers = values.counting(many_rows, many_rows), labels = values.list<std::int32_t>(many_rows);
  View<std::int32_t, 2> place = View<std::int32_t, 2>(numbers.data, {{many_rows, 1}});
};

// A kernel of so many bytes a column.
void add(std::vector<RowCase>& list, const char* name, double bytes, std::function<void(std::int64_t)> run) {
  list.push_back({name, bytes * columns, std::move(run)});
}

// Kernels of every block.
template <class T>
void add_block_cases(std::vector<RowCase>& list, Stream& stream, const RowOperands<T>& o) {
  constexpr double t = sizeof(T), a = sizeof(acc_t<T>);
  using C = View<const T, 2>;
  const auto x = o.x, y = o.y, z = o.z, second = o.second, wide = o.wide;
  const auto w = o.w;
  const auto rstd = o.rstd, dw = o.dw;
  const auto partial = o.partial, angles = o.angles, delta = o.delta, table = o.table;
  const auto numbers = o.numbers;
  add(list, "copy_rows", 2 * t, [=, &stream](std::int64_t r) { copy_rows<T>(stream, C(top(x, r)), top(y, r)); });
  add(list, "norm_forward", 2 * t,
      [=, &stream](std::int64_t r) { rmsnorm_forward<T>(stream, top(x, r), w, 1e-5, top(y, r), head(rstd, r)); });
  add(list, "norm_backward", 4 * t, [=, &stream](std::int64_t r) {
    rmsnorm_backward<T>(stream, top(y, r), top(x, r), w, head(rstd, r), C(top(z, r)), top(z, r), partial, dw);
  });
  add(list, "residual_norm_forward", 4 * t, [=, &stream](std::int64_t r) {
    residual_rmsnorm_forward<T>(stream, C(top(x, r)), top(y, r), w, 1e-5, top(z, r), top(second, r), head(rstd, r));
  });
  add(list, "residual_add", 3 * t,
      [=, &stream](std::int64_t r) { residual_add<T>(stream, top(x, r), top(y, r), top(z, r), Dropout{}); });
  add(list, "swiglu_forward", 3 * t,
      [=, &stream](std::int64_t r) { swiglu_forward<T>(stream, top(wide, r), top(y, r)); });
  add(list, "swiglu_backward", 5 * t,
      [=, &stream](std::int64_t r) { swiglu_backward<T>(stream, top(wide, r), top(y, r), top(wide, r)); });
  add(list, "rotary", 2 * t,
      [=, &stream](std::int64_t r) { rotary<T>(stream, cube(x, r), head(numbers, r), angles, angles, false); });
  add(list, "accumulate", t + 2 * a, [=, &stream](std::int64_t r) { accumulate<T>(stream, top(x, r), top(table, r)); });
  add(list, "attention_delta", 2 * t,
      [=, &stream](std::int64_t r) { attention_delta<T>(stream, cube(x, r), cube(y, r), top(delta, r)); });
}

// Those of the embedding, the loss and experts.
template <class T>
void add_other_cases(std::vector<RowCase>& list, Stream& stream, const RowOperands<T>& o) {
  constexpr double t = sizeof(T), a = sizeof(acc_t<T>);
  const auto x = o.x, y = o.y, wide = o.wide;
  const auto rstd = o.rstd, loss = o.loss, squares = o.squares;
  const auto logits = o.logits, table = o.table;
  const auto numbers = o.numbers, labels = o.labels;
  const auto place = o.place;
  add(list, "cross_entropy", a + t, [=, &stream](std::int64_t r) {
    View<T, 2> d_logits = top(y, r);
    cross_entropy<T>(stream, top(logits, r), head(labels, r), 1.0, 0.0, head(loss, r), head(squares, r), d_logits);
  });
  add(list, "embedding_forward", 2 * t,
      [=, &stream](std::int64_t r) { embedding_forward<T>(stream, head(numbers, r), x, {}, {}, top(y, r)); });
  add(list, "embedding_backward", t + 2 * a, [=, &stream](std::int64_t r) {
    embedding_backward<T>(stream, head(numbers, r), head(numbers, r), top(x, r), table);
  });
  add(list, "permute_rows", 2 * t,
      [=, &stream](std::int64_t r) { permute_rows<T>(stream, top(x, r), head(numbers, r), 1, top(y, r)); });
  add(list, "unpermute_rows", 2 * t,
      [=, &stream](std::int64_t r) { unpermute_rows<T>(stream, top(x, r), top(place, r), 0, {}, false, top(y, r)); });
  add(list, "weighted_swiglu_forward", 3 * t,
      [=, &stream](std::int64_t r) { weighted_swiglu_forward<T>(stream, top(wide, r), head(rstd, r), top(y, r)); });
  add(list, "weighted_swiglu_backward", 5 * t, [=, &stream](std::int64_t r) {
    weighted_swiglu_backward<T>(stream, top(wide, r), head(rstd, r), top(y, r), top(wide, r), head(loss, r));
  });
}

// Those of routers, which have few columns.
template <class A>
void add_router_cases(std::vector<RowCase>& list, Stream& stream, Values& values) {
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
  list.push_back({"router_forward", experts * 2 * a, [=, &stream](std::int64_t r) {
                    router_forward<A>(stream, options, top(logits, r), {}, top(weights, r), top(choices, r),
                                      top(scores, r));
                  }});
  list.push_back({"router_backward", experts * 2 * a, [=, &stream](std::int64_t r) {
                    router_backward<A>(stream, options, top(logits, r), top(scores, r), top(choices, r),
                                       top(weights, r), {}, top(d_logits, r));
                  }});
  list.push_back({"moe_sort", 16.0, [=, &stream](std::int64_t r) {
                    moe_sort(stream, View<const std::int32_t, 2>(cycle.data, {{r, 1}}), workspace, counts, offsets,
                             order.slice(0, r), top(place, r));
                  }});
}

// From the times of few and of many rows.
KernelRates rates_between(double few, double many, double bytes) {
  const double more = bytes * (many_rows - few_rows);
  const double bandwidth = more / std::max(many - few, 1e-9);
  return {std::max(0.0, few - bytes * few_rows / bandwidth), bandwidth};
}

template <class T>
std::vector<std::pair<std::string, KernelRates>> measure(Stream& stream, Heartbeat& heartbeat) {
  Values values(stream);
  std::vector<std::vector<RowCase>> cases(sets);
  for (std::vector<RowCase>& list : cases) {
    const RowOperands<T> operands(values);
    add_block_cases<T>(list, stream, operands);
    add_other_cases<T>(list, stream, operands);
    add_router_cases<acc_t<T>>(list, stream, values);
  }
  std::vector<std::pair<std::string, KernelRates>> rates;
  for (std::size_t k = 0; k < cases.front().size(); ++k) {
    const auto seconds = [&](std::int64_t rows) {
      return seconds_of(stream, [&](int i) { cases[to_size(i % sets)][k].run(rows); });
    };
    const double few = seconds(few_rows), many = seconds(many_rows);
    rates.emplace_back(cases.front()[k].name, rates_between(few, many, cases.front()[k].bytes));
    heartbeat.beat();
  }
  return rates;
}

}  // namespace

std::vector<std::pair<std::string, KernelRates>> measure_row_kernels(Stream& stream, DType type, Heartbeat& heartbeat) {
  switch (type) {
    case DType::f64:
      return measure<double>(stream, heartbeat);
    case DType::bf16:
      return measure<bf16>(stream, heartbeat);
    default:
      return measure<float>(stream, heartbeat);
  }
}

}  // namespace forge
