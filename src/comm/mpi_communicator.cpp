#include "comm/mpi_communicator.hpp"

#include <algorithm>
#include <cstring>

#include "comm/mpi_check.hpp"

namespace forge {

namespace {

// MPI counts are int: longer buffers go in pieces.
constexpr std::int64_t piece_elements = std::int64_t{1} << 28;

MPI_Datatype mpi_type(DType type) {
  switch (type) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return MPI_UINT16_T;
    case DType::u8:
      return MPI_UINT8_T;
    case DType::u32:
      return MPI_UINT32_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
  }
  throw Error("no MPI type");
}

// Adds bf16 in fp32, rounding each partial sum.
void add_bf16(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const bf16*>(in);
  auto* b = static_cast<bf16*>(inout);
  for (int i = 0; i < *count; ++i) b[i] = bf16(static_cast<float>(a[i]) + static_cast<float>(b[i]));
}

template <class F>
void in_pieces(std::int64_t count, F f) {
  for (std::int64_t begin = 0; begin < count; begin += piece_elements)
    f(begin, static_cast<int>(std::min(piece_elements, count - begin)));
}

std::byte* at(void* data, std::int64_t element, DType type) {
  return static_cast<std::byte*>(data) + static_cast<std::size_t>(element) * size_of(type);
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm parent) {
  mpi_check(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  mpi_check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  mpi_check(MPI_Op_create(add_bf16, 1, &add_bf16_), "MPI_Op_create");
}

MpiCommunicator::~MpiCommunicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  MPI_Op_free(&add_bf16_);
  MPI_Comm_free(&comm_);
}

void MpiCommunicator::all_reduce(Stream& stream, void* data, std::int64_t count, DType type) {
  if (size_ == 1) return;
  count_bytes(2 * count * (size_ - 1) / size_, type);
  stream.submit([=, this] {
    in_pieces(count, [&](std::int64_t begin, int n) {
      mpi_check(MPI_Allreduce(MPI_IN_PLACE, at(data, begin, type), n, mpi_type(type),
                              type == DType::bf16 ? add_bf16_ : MPI_SUM, comm_),
                "MPI_Allreduce");
    });
  });
}

void MpiCommunicator::all_gather(Stream& stream, const void* in, void* out, std::int64_t count, DType type) {
  count_bytes(count * (size_ - 1), type);
  require(count <= piece_elements, "an all-gather of more than 2^28 elements a rank");
  stream.submit([=, this] {
    const bool in_place = in == at(out, rank_ * count, type);
    mpi_check(MPI_Allgather(in_place ? MPI_IN_PLACE : in, static_cast<int>(count), mpi_type(type), out,
                            static_cast<int>(count), mpi_type(type), comm_),
              "MPI_Allgather");
  });
}

void MpiCommunicator::reduce_scatter(Stream& stream, const void* in, void* out, std::int64_t count, DType type) {
  count_bytes(count * (size_ - 1), type);
  require(count <= piece_elements, "a reduce-scatter of more than 2^28 elements a rank");
  stream.submit([=, this] {
    // MPI forbids that out lies inside in: the part goes through a buffer of its own then.
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(type);
    const bool aliased = out >= in && out < at(const_cast<void*>(in), size_ * count, type);
    std::vector<std::byte> part(aliased ? bytes : 0);
    mpi_check(MPI_Reduce_scatter_block(in, aliased ? part.data() : out, static_cast<int>(count), mpi_type(type),
                                       type == DType::bf16 ? add_bf16_ : MPI_SUM, comm_),
              "MPI_Reduce_scatter_block");
    if (aliased) std::memcpy(out, part.data(), bytes);
  });
}

void MpiCommunicator::broadcast(Stream& stream, void* data, std::int64_t count, DType type, int root) {
  if (rank_ == root) count_bytes(count, type);
  stream.submit([=, this] {
    in_pieces(count, [&](std::int64_t begin, int n) {
      mpi_check(MPI_Bcast(at(data, begin, type), n, mpi_type(type), root, comm_), "MPI_Bcast");
    });
  });
}

void MpiCommunicator::all_to_all(Stream& stream, const void* in, void* out, std::int64_t count, DType type) {
  count_bytes(count * (size_ - 1), type);
  require(count <= piece_elements, "an all-to-all of more than 2^28 elements a pair");
  stream.submit([=, this] {
    mpi_check(MPI_Alltoall(in, static_cast<int>(count), mpi_type(type), out, static_cast<int>(count), mpi_type(type),
                           comm_),
              "MPI_Alltoall");
  });
}

void MpiCommunicator::group_begin() {
  require(!grouping_, "groups of transfers don't nest");
  grouping_ = true;
}

void MpiCommunicator::group_end(Stream& stream) {
  require(grouping_, "a group of transfers ended that had not begun");
  grouping_ = false;
  stream.submit([this, transfers = std::move(group_)] { run_transfers(transfers); });
  group_.clear();
}

void MpiCommunicator::transfer(Stream& stream, Transfer t) {
  if (t.sends) count_bytes(t.count, t.type);
  if (grouping_)
    group_.push_back(t);
  else
    stream.submit([this, t] { run_transfers({t}); });
}

void MpiCommunicator::send(Stream& stream, const void* data, std::int64_t count, DType type, int to) {
  transfer(stream, {const_cast<void*>(data), count, type, to, true});
}

void MpiCommunicator::receive(Stream& stream, void* data, std::int64_t count, DType type, int from) {
  transfer(stream, {data, count, type, from, false});
}

void MpiCommunicator::run_transfers(const std::vector<Transfer>& transfers) {
  std::vector<MPI_Request> requests;
  for (const auto& t : transfers)
    in_pieces(t.count, [&](std::int64_t begin, int n) {
      requests.emplace_back();
      void* data = at(t.data, begin, t.type);
      mpi_check(t.sends ? MPI_Isend(data, n, mpi_type(t.type), t.peer, 0, comm_, &requests.back())
                        : MPI_Irecv(data, n, mpi_type(t.type), t.peer, 0, comm_, &requests.back()),
                t.sends ? "MPI_Isend" : "MPI_Irecv");
    });
  mpi_check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
}

void MpiCommunicator::sum_host(std::span<double> values) {
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_SUM, comm_),
            "MPI_Allreduce");
}

void MpiCommunicator::sum_host(std::span<std::int64_t> values) {
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_INT64_T, MPI_SUM, comm_),
            "MPI_Allreduce");
}

void MpiCommunicator::max_host(std::span<double> values) {
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX, comm_),
            "MPI_Allreduce");
}

void MpiCommunicator::max_host(std::span<std::int64_t> values) {
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_INT64_T, MPI_MAX, comm_),
            "MPI_Allreduce");
}

std::vector<std::string> MpiCommunicator::gather_host(const std::string& text) {
  const int length = static_cast<int>(text.size());
  std::vector<int> lengths(static_cast<std::size_t>(size_)), starts(static_cast<std::size_t>(size_));
  mpi_check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_), "MPI_Allgather");
  int all = 0;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    starts[r] = all;
    all += lengths[r];
  }
  std::string joined(static_cast<std::size_t>(all), ' ');
  mpi_check(MPI_Allgatherv(text.data(), length, MPI_CHAR, joined.data(), lengths.data(), starts.data(), MPI_CHAR, comm_),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.push_back(joined.substr(static_cast<std::size_t>(starts[r]), static_cast<std::size_t>(lengths[r])));
  return texts;
}

void MpiCommunicator::barrier() { mpi_check(MPI_Barrier(comm_), "MPI_Barrier"); }

}  // namespace forge
