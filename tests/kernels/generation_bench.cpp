// generation_bench [THREADS [REPEATS]]: the choice of a token beside a sort of all logits, and products of one row with
// the weights of GPT-2's size beside those of Gemm and the rate of a copy; medians, in turn. Not a test.

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "choice_case.hpp"
#include "core/median.hpp"
#include "device/random_values.hpp"
#include "kernels/gemm/few_rows.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/kernels.hpp"

namespace {

using namespace forge;

template <class F>
double seconds(Stream& stream, const F& f) {
  stream.synchronize();
  const auto start = std::chrono::steady_clock::now();
  f();
  stream.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Medians of the two, in turn.
template <class F, class G>
std::pair<double, double> in_turn(Stream& stream, int repeats, const F& f, const G& g) {
  std::vector<double> first, second;
  for (int i = 0; i <= repeats; ++i) {
    const double a = seconds(stream, f), b = seconds(stream, g);
    if (i == 0) continue;  // makes primitives and touches pages
    first.push_back(a);
    second.push_back(b);
  }
  return {median(first), median(second)};
}

void choices(Stream& stream, int repeats) {
  std::printf("token of 131,072 logits: partial selection and sort, ms\n");
  const reference::Values x = reference::normal_values(131072, 5, 1.5);
  reference::ChoiceCase<float> device(x);
  const auto row = [&](const char* name, const TokenChoice& how) {
    const auto [now, sorted] = in_turn(
        stream, repeats, [&] { device.run(stream, how); }, [&] { reference::by_sorting(x, how); });
    std::printf("  %-24s %8.3f %8.3f\n", name, 1e3 * now, 1e3 * sorted);
  };
  row("temperature 0", {0, 0, 1, 0.4});
  row("temperature 1", {1, 0, 1, 0.4});
  row("top_k 50", {1, 50, 1, 0.4});
  row("top_p 0.95", {1, 0, 0.95, 0.4});
  row("top_k 50, top_p 0.95", {1, 50, 0.95, 0.4});
}

// All products of a token, each with weights of its own, which no cache holds.
template <class T>
void products(Stream& stream, int repeats) {
  struct Layer {
    std::int64_t out, in, often;
  };
  const Layer layers[] = {{2304, 768, 12}, {768, 768, 12}, {3072, 768, 12}, {768, 3072, 12}, {50304, 768, 1}};
  std::int64_t all = 0;
  for (const Layer& l : layers) all += l.out * l.in * l.often;
  const std::size_t bytes = static_cast<std::size_t>(all) * sizeof(T);
  const Buffer weights(bytes), copied(bytes), from(50304 * sizeof(T)), to(50304 * sizeof(T)), workspace(16 << 20);
  const auto matrix = [](const Buffer& b, std::int64_t first, std::int64_t rows, std::int64_t columns) {
    return View<T, 2>(reinterpret_cast<T*>(b.data()) + first, {{rows, columns}});
  };
  fill_random(stream, matrix(weights, 0, 1, all), 0);
  fill_random(stream, matrix(from, 0, 1, 50304), 1);
  Gemm gemm(workspace.data(), workspace.bytes());
  const auto each = [&](const auto& f) {
    std::int64_t first = 0;
    for (const Layer& l : layers)
      for (std::int64_t i = 0; i < l.often; ++i, first += l.out * l.in)
        f(View<const T, 2>(matrix(from, 0, 1, l.in)), View<const T, 2>(matrix(weights, first, l.out, l.in)),
          matrix(to, 0, 1, l.out));
  };
  const auto [now, before] = in_turn(
      stream, repeats, [&] { each([&](auto x, auto w, auto y) { few_rows_product<T, T>(stream, x, w, y); }); },
      [&] { each([&](auto x, auto w, auto y) { gemm(stream, Transpose::no, Transpose::yes, 1.0, x, w, 0.0, y); }); });
  const View<const T, 2> source(matrix(weights, 0, 1024, all / 1024));
  const auto [copy, again] = in_turn(
      stream, repeats, [&] { copy_rows<T>(stream, source, matrix(copied, 0, 1024, all / 1024)); }, [] {});
  static_cast<void>(again);
  const double gigabytes = 1e-9 * static_cast<double>(bytes);
  std::printf("  %zu-byte weights: %6.2f ms, %5.1f GB/s; Gemm %7.2f ms; copy %5.1f GB/s read and written\n", sizeof(T),
              1e3 * now, gigabytes / now, 1e3 * before, 2 * gigabytes / copy);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1, repeats = argc > 2 ? std::atoi(argv[2]) : 15;
  Stream stream(threads);
  choices(stream, repeats);
  std::printf("products of one row, 124 M weights\n");
  products<float>(stream, repeats);
  products<bf16>(stream, repeats);
}
