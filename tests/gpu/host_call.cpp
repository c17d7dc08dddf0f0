#include "device/parallel.hpp"

// A kernel that calls a host function, which must not compile.
int host_value(int x) {
  return x;
}

void call_the_host(forge::Stream& stream, int* values) {
  forge::parallel_for(stream, 1, [=] FORGE_LAMBDA(std::int64_t i) { values[i] = host_value(3); });
}
