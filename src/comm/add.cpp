#include "comm/add.hpp"

#include <algorithm>
#include <string>
#include <type_traits>

#include "core/error.hpp"
#include "device/host_loop.hpp"

namespace forge {

namespace {

// f(T{}) for the type of `type`.
template <class F>
void for_type(DType type, F f) {
  switch (type) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bf16{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::i64:
      return f(std::int64_t{});
    default:
      throw Error("ranks don't add values of type " + std::string(name_of(type)));
  }
}

template <class T>
struct Sum {
  using type = T;
};
template <>
struct Sum<bf16> {
  using type = float;
};

constexpr std::int64_t block_elements = 1024;  // of a sum over many parts: stays in the first-level cache

}  // namespace

void add_on_host(std::byte* to, const std::byte* from, std::int64_t count, DType type) {
  for_type(type, [=](auto element) {
    using T = decltype(element);
    using A = typename Sum<T>::type;
    T* y = reinterpret_cast<T*>(to);
    const T* x = reinterpret_cast<const T*>(from);
    device_detail::run_for(0, count, [=](std::int64_t i) { y[i] = T(A(y[i]) + A(x[i])); });
  });
}

void max_on_host(std::byte* to, std::span<const std::byte* const> parts, std::int64_t count, DType type) {
  for_type(type, [=](auto element) {
    using T = decltype(element);
    if constexpr (std::is_floating_point_v<T>) {
      T* y = reinterpret_cast<T*>(to);
      for (std::int64_t i = 0; i < count; ++i) {
        T most = reinterpret_cast<const T*>(parts.front())[i];
        for (const std::byte* part : parts) most = std::max(most, reinterpret_cast<const T*>(part)[i]);
        y[i] = most;
      }
    } else {
      throw Error("ranks find no largest value of type " + std::string(name_of(type)));
    }
  });
}

void sum_on_host(std::byte* to, std::span<const std::byte* const> parts, std::int64_t count, DType type) {
  for_type(type, [=](auto element) {
    using T = decltype(element);
    using A = typename Sum<T>::type;
    A sums[block_elements];
    A* const sum = sums;
    for (std::int64_t begin = 0; begin < count; begin += block_elements) {
      const std::int64_t n = std::min(block_elements, count - begin);
      bool first = true;
      for (const std::byte* part : parts) {
        const T* x = reinterpret_cast<const T*>(part) + begin;
        if (first)
          device_detail::run_for(0, n, [=](std::int64_t i) { sum[i] = A(x[i]); });
        else
          device_detail::run_for(0, n, [=](std::int64_t i) { sum[i] += A(x[i]); });
        first = false;
      }
      T* y = reinterpret_cast<T*>(to) + begin;
      device_detail::run_for(0, n, [=](std::int64_t i) { y[i] = T(sum[i]); });
    }
  });
}

}  // namespace forge
