#include "nccl_sum.hpp"

#include <cstdint>

#include "numbers.hpp"

namespace vgpu {

namespace {

struct Bf16 {
  std::uint16_t bits;
};
template <class T>
T plus(T a, T b) {
  return static_cast<T>(a + b);
}
Bf16 plus(Bf16 a, Bf16 b) {
  return {to_bf16(from_bf16(a.bits) + from_bf16(b.bits))};
}

template <class T>
T larger(T a, T b) {
  return a < b ? b : a;
}
Bf16 larger(Bf16 a, Bf16 b) {
  return from_bf16(a.bits) < from_bf16(b.bits) ? b : a;
}

template <class T>
void combine(ncclRedOp_t operation, const std::vector<const char*>& inputs, std::size_t owner, std::size_t begin,
             std::size_t count, char* to) {
  const std::size_t ranks = inputs.size();
  auto* result = reinterpret_cast<T*>(to);
  for (std::size_t k = 0; k < ranks; ++k) {
    const T* from = reinterpret_cast<const T*>(inputs[(owner + 1 + k) % ranks]) + begin;
    if (k == 0)
      for (std::size_t i = 0; i < count; ++i) result[i] = from[i];
    else
      for (std::size_t i = 0; i < count; ++i)
        result[i] = operation == ncclMax ? larger(result[i], from[i]) : plus(result[i], from[i]);
  }
}

}  // namespace

bool can_sum(ncclDataType_t type) {
  return type == ncclFloat64 || type == ncclFloat32 || type == ncclBfloat16 || type == ncclInt32 || type == ncclInt64 ||
         type == ncclUint32 || type == ncclUint64;
}

void reduce_ranks(ncclRedOp_t operation, ncclDataType_t type, const std::vector<const char*>& inputs, std::size_t owner,
                  std::size_t begin, std::size_t count, char* to) {
  switch (type) {
    case ncclFloat64:
      return combine<double>(operation, inputs, owner, begin, count, to);
    case ncclFloat32:
      return combine<float>(operation, inputs, owner, begin, count, to);
    case ncclBfloat16:
      return combine<Bf16>(operation, inputs, owner, begin, count, to);
    case ncclInt32:
    case ncclUint32:
      return combine<std::uint32_t>(operation, inputs, owner, begin, count, to);
    default:
      return combine<std::uint64_t>(operation, inputs, owner, begin, count, to);
  }
}

}  // namespace vgpu
