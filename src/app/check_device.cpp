#include <algorithm>
#include <chrono>
#include <type_traits>

#include "app/checks.hpp"
#include "app/job.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/partials.hpp"
#include "device/device_memory.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/rows/bit_sums.hpp"
#include "predict/rate_timing.hpp"

namespace forge {

namespace {

using Clock = std::chrono::steady_clock;

// The least of several pieces of work of about 50 ms, in seconds of one call: other programs only make it longer.
template <class Work>
double least_seconds_of(Stream& stream, int rank, const char* place, const Work& work) {
  const auto once = [&](std::int64_t calls) {
    const auto start = Clock::now();
    inject_fault(rank, place);
    for (std::int64_t i = 0; i < calls; ++i) work();
    stream.synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(calls);
  };
  once(1);
  const auto calls = static_cast<std::int64_t>(std::clamp(0.05 / once(1), 1.0, 1000.0));
  double least = once(calls);
  for (int i = 0; i < 3; ++i) least = std::min(least, once(calls));
  return least;
}

// A word as wide as the number.
template <class T>
using Word =
    std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;

template <class T>
class DeviceCheck {
 public:
  explicit DeviceCheck(Checks& checks) : checks_(checks), values_(stream_) {
    workspace_ = values_.list<std::uint8_t>(workspace_bytes);
    partial_ = values_.list<std::uint64_t>(sum_partials);
    sum_ = values_.list<std::uint64_t>(1);
  }

  // C(n,n) = A(n,n) B(n,n)ᵀ, the same numbers on every rank.
  void products() {
    const std::int64_t n = sized(8192, 512);
    Gemm gemm(workspace_.data, workspace_bytes);
    const auto a = values_.matrix<T>(n, n), b = values_.matrix<T>(n, n), c = values_.matrix<T>(n, n);
    const View<T, 1> result(c.data, {{n * n}});
    const auto multiply = [&] {
      gemm(stream_, Transpose::no, Transpose::yes, 1.0, View<const T, 2>(a), View<const T, 2>(b), 0.0, c);
    };
    multiply();
    const std::uint64_t first = bits_of(result);
    const double seconds = least_seconds_of(stream_, checks_.world().rank(), "products", multiply);
    spoil(c.data, "products");
    const std::uint64_t last = bits_of(result);
    const double flop = 2.0 * static_cast<double>(n * n * n);
    checks_.compare(
        "products, time", seconds,
        [&](double median) { return format_flops(flop / median) + "FLOP/s in " + std::string(name_of(dtype_of<T>)); },
        true);
    checks_.find("products, again", Verdict::wrong,
                 first == last ? "" : "a product has other bits when it is computed again", "the same bits each time",
                 true);
    checks_.agree("products, on all ranks", Verdict::wrong, device_info().name, std::to_string(last),
                  "the same bits on all ranks with the same device", true);
  }

  void copies() {
    const std::int64_t free = static_cast<std::int64_t>(free_device_memory().value_or(std::size_t{256} << 20));
    const std::int64_t count = std::min(free / 4, sized(std::int64_t{4} << 30, 64 << 20)) / std::int64_t{sizeof(T)};
    const auto from = values_.list<T>(count), to = values_.list<T>(count);
    const std::size_t bytes = to_size(count) * sizeof(T);
    const double seconds = least_seconds_of(stream_, checks_.world().rank(), "memory",
                                            [&] { copy_on_device(stream_, to.data, from.data, bytes); });
    spoil(to.data, "memory");
    const bool holds = bits_of(from) == bits_of(to);
    checks_.compare(
        "memory, time", seconds,
        [&](double median) {
          return format_bytes(static_cast<std::size_t>(2.0 * static_cast<double>(bytes) / median)) + "/s";
        },
        true);
    checks_.find("memory, contents", Verdict::wrong, holds ? "" : "a copy differs from its source",
                 format_bytes(bytes) + " on each rank hold their contents", true);
  }

 private:
  static constexpr std::size_t workspace_bytes = 64u << 20;

  std::uint64_t bits_of(const View<T, 1>& x) {
    const View<const Word<T>, 1> words(reinterpret_cast<const Word<T>*>(x.data), {{x.size()}});
    sum_bits<Word<T>>(stream_, words, partial_, sum_);
    std::uint64_t sum = 0;
    copy_to_host(stream_, &sum, sum_.data, sizeof sum);
    stream_.synchronize();
    return sum;
  }
  // A bit, on purpose.
  void spoil(T* data, const char* place) {
    if (!wrong_fault(checks_.world().rank(), place)) return;
    Word<T> word = 0;
    copy_to_host(stream_, &word, data, sizeof word);
    stream_.synchronize();
    word ^= 1;
    copy_to_device(stream_, data, &word, sizeof word);
    stream_.synchronize();
  }

  Checks& checks_;
  Stream stream_;
  Values values_;
  View<std::uint8_t, 1> workspace_;
  View<std::uint64_t, 1> partial_, sum_;
};

}  // namespace

void check_device(Checks& checks, const Deck& deck) {
  checks.agree("device", Verdict::low, "", device_info().name + (", " + format_bytes(device_info().memory_bytes)),
               device_info().name + (", " + format_bytes(device_info().memory_bytes) + " on all ranks"), false);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) {
    DeviceCheck<T>(checks).products();
    DeviceCheck<T>(checks).copies();
  });
}

}  // namespace forge
