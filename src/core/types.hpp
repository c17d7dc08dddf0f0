#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "core/macros.hpp"

namespace forge {

// Brain float: the upper half of an fp32 number. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  FORGE_INLINE explicit bf16(float value) { FORGE_ROUND_TO_BF16(bits, value, rounded(value)); }
  FORGE_INLINE explicit bf16(double value) : bf16(static_cast<float>(value)) {}
  FORGE_INLINE explicit operator float() const {
    std::uint32_t u;
    FORGE_WIDEN_BF16(u, bits);
    float value;
    memcpy(&value, &u, sizeof value);
    return value;
  }
  FORGE_INLINE explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
  // float(bf16(value)), for immediate use in arithmetic.
  FORGE_INLINE static float nearest(float value) {
    std::uint32_t u;
    FORGE_NEAREST_BF16(u, value, static_cast<std::uint32_t>(rounded(value)) << 16);
    memcpy(&value, &u, sizeof value);
    return value;
  }

 private:
  FORGE_INLINE static std::uint16_t rounded(float value) {
    std::uint32_t u;
    memcpy(&u, &value, sizeof u);
    const std::uint32_t up = u + 0x7fffu + ((u >> 16) & 1u);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    return static_cast<std::uint16_t>((nan ? u | 0x400000u : up) >> 16);
  }
};
static_assert(sizeof(bf16) == 2);

enum class DType : std::uint8_t { f64, f32, bf16, f16, u8, u16, u32, i32, i64 };

// Bytes of one element; 0: no such type.
constexpr std::size_t size_of(DType type) {
  constexpr std::size_t sizes[] = {8, 4, 2, 2, 1, 2, 4, 4, 8};
  return type <= DType::i64 ? sizes[static_cast<int>(type)] : 0;
}

constexpr std::string_view name_of(DType type) {
  constexpr std::string_view names[] = {"fp64", "fp32", "bf16", "fp16", "uint8", "uint16", "uint32", "int32", "int64"};
  return type <= DType::i64 ? names[static_cast<int>(type)] : "?";
}

template <class T>
inline constexpr DType dtype_of = std::is_same_v<T, float>           ? DType::f32
                                  : std::is_same_v<T, bf16>          ? DType::bf16
                                  : std::is_same_v<T, std::uint8_t>  ? DType::u8
                                  : std::is_same_v<T, std::uint16_t> ? DType::u16
                                  : std::is_same_v<T, std::uint32_t> ? DType::u32
                                  : std::is_same_v<T, std::int32_t>  ? DType::i32
                                  : std::is_same_v<T, std::int64_t>  ? DType::i64
                                                                     : DType::f64;

// The type that sums of T are accumulated in, and that statistics and weight gradients of a T layer have.
template <class T>
using acc_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

// x rounded to T, in its own type.
template <class T, class A>
FORGE_INLINE A as_held(A x) {
  if constexpr (std::is_same_v<T, bf16> && std::is_same_v<A, float>)
    return bf16::nearest(x);
  else
    return A(T(x));
}

// Explicit instantiation: of one specialization of a function template, whose signature its declaration has; of a
// function for every compute type or every accumulation type; of a class, or by the macro M of a type, for every
// compute type.
#define FORGE_INSTANTIATE_ONE(...) template decltype(__VA_ARGS__) __VA_ARGS__
#define FORGE_INSTANTIATE_ACC_FUNCTION(f) \
  FORGE_INSTANTIATE_ONE(f<double>);       \
  FORGE_INSTANTIATE_ONE(f<float>)
#define FORGE_INSTANTIATE_FUNCTION(f) \
  FORGE_INSTANTIATE_ACC_FUNCTION(f);  \
  FORGE_INSTANTIATE_ONE(f<bf16>)
#define FORGE_INSTANTIATE_CLASS(C) \
  template class C<double>;        \
  template class C<float>;         \
  template class C<bf16>
#define FORGE_COMPUTE_TYPES(M) M(double) M(float) M(bf16)

// The types of a run (DESIGN: never one): of master weights, of activations and the weights that GEMMs read, of
// gradients and statistics, of gradients on the wire. An optimizer's states: model/optimizer_state.hpp.
struct Precision {
  DType storage = DType::f32;
  DType compute = DType::f32;
  DType accumulate = DType::f32;
  DType reduce = DType::f32;

  // GEMMs read a second copy of the weights, in the compute type.
  bool has_compute_copy() const { return storage != compute; }
};

constexpr Precision fp64_precision{DType::f64, DType::f64, DType::f64, DType::f64};
constexpr Precision fp32_precision{DType::f32, DType::f32, DType::f32, DType::f32};
constexpr Precision bf16_precision{DType::f32, DType::bf16, DType::f32, DType::f32};

}  // namespace forge
