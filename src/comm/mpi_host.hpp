#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "comm/host_reduction.hpp"

namespace forge {

// Host values over MPI, for MpiCommunicator: Communicator's operations of these names (comm/communicator.hpp).
void mpi_gather_host(MPI_Comm ranks, const std::byte* in, std::byte* out, std::size_t bytes);
void mpi_broadcast_host(MPI_Comm ranks, std::byte* data, std::size_t bytes, int root);
void mpi_collect_host(MPI_Comm ranks, const std::string& text, int root,
                      const std::function<void(const std::string&)>& take);
// Integers, which give the same in any order.
void mpi_reduce_host(MPI_Comm ranks, std::span<std::int64_t> values, HostReduction reduction);

}  // namespace forge
