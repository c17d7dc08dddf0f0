#pragma once

#include <memory>
#include <vector>

#include "nccl_comm.hpp"
#include "work.hpp"

namespace vgpu {

// The arguments of one call; `in` and `out` are device addresses.
struct Operation {
  enum class Kind { collective, send, receive };
  Kind kind;
  // A collective's.
  Call call{};
  const void* in = nullptr;
  void* out = nullptr;
  // A transfer's.
  int peer = 0;
  std::size_t bytes = 0;
};

// The operations of one communicator in one group: they proceed together, and end together.
std::unique_ptr<Work> nccl_work(std::shared_ptr<Comm> comm, std::vector<Operation> operations);

// Elements of an ncclDataType_t.
std::size_t size_of(ncclDataType_t type);

}  // namespace vgpu
