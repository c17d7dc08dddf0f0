#include "comm/mpi_host.hpp"

#include <algorithm>

#include "comm/mpi_check.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 30;  // MPI counts with int

// f(begin, length) of the pieces of so many bytes.
template <class F>
void in_pieces(std::size_t bytes, F f) {
  for (std::size_t begin = 0; begin < bytes; begin += piece_bytes)
    f(begin, static_cast<int>(std::min(piece_bytes, bytes - begin)));
}

MPI_Op operation_of(HostReduction reduction) {
  switch (reduction) {
    case HostReduction::largest:
      return MPI_MAX;
    case HostReduction::smallest:
      return MPI_MIN;
    case HostReduction::sum:
      break;
  }
  return MPI_SUM;
}

}  // namespace

void mpi_gather_host(MPI_Comm ranks, const std::byte* in, std::byte* out, std::size_t bytes) {
  require(bytes < (std::size_t{1} << 31), "host values are short");
  mpi_check(MPI_Allgather(in, static_cast<int>(bytes), MPI_BYTE, out, static_cast<int>(bytes), MPI_BYTE, ranks),
            "MPI_Allgather");
}

void mpi_broadcast_host(MPI_Comm ranks, std::byte* data, std::size_t bytes, int root) {
  in_pieces(bytes, [&](std::size_t begin, int n) {
    mpi_check(MPI_Bcast(data + begin, n, MPI_BYTE, root, ranks), "MPI_Bcast");
  });
}

void mpi_collect_host(MPI_Comm ranks, const std::string& text, int root,
                      const std::function<void(const std::string&)>& take) {
  constexpr int tag = 0;
  int rank = 0, size = 1;
  mpi_check(MPI_Comm_rank(ranks, &rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(ranks, &size), "MPI_Comm_size");
  if (rank != root) {
    const auto length = static_cast<std::int64_t>(text.size());
    mpi_check(MPI_Send(&length, 1, MPI_INT64_T, root, tag, ranks), "MPI_Send");
    in_pieces(text.size(), [&](std::size_t begin, int n) {
      mpi_check(MPI_Send(text.data() + begin, n, MPI_BYTE, root, tag, ranks), "MPI_Send");
    });
    return;
  }
  std::string received;
  for (int r = 0; r < size; ++r) {
    if (r == root) {
      take(text);
      continue;
    }
    std::int64_t length = 0;
    mpi_check(MPI_Recv(&length, 1, MPI_INT64_T, r, tag, ranks, MPI_STATUS_IGNORE), "MPI_Recv");
    received.resize(to_size(length));
    in_pieces(received.size(), [&](std::size_t begin, int n) {
      mpi_check(MPI_Recv(received.data() + begin, n, MPI_BYTE, r, tag, ranks, MPI_STATUS_IGNORE), "MPI_Recv");
    });
    take(received);
  }
}

void mpi_reduce_host(MPI_Comm ranks, std::span<std::int64_t> values, HostReduction reduction) {
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_INT64_T,
                          operation_of(reduction), ranks),
            "MPI_Allreduce");
}

}  // namespace forge
