// What g++'s -fsanitize-coverage=trace-pc calls at each branch, as counters of the kind that libFuzzer reads.
#include <cstdint>

extern "C" void __sanitizer_cov_8bit_counters_init(std::uint8_t* start, std::uint8_t* stop);

namespace {

constexpr std::uintptr_t places = 1 << 16;
std::uint8_t counters[places];

[[maybe_unused]] const bool ready = [] {
  __sanitizer_cov_8bit_counters_init(counters, counters + places);
  return true;
}();

}  // namespace

extern "C" __attribute__((no_sanitize("address", "undefined"))) void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  std::uint8_t& counter = counters[(place ^ place >> 16) % places];
  if (counter < 255) ++counter;
}

// Comparisons of floating point, which g++ reports and libFuzzer doesn't take.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
