#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/types.hpp"
#include "device/stream.hpp"

namespace forge {

// A group of ranks and their collectives: over MPI, over NCCL, or between threads of one process. Every rank of the group
// calls the same operations in the same order. Device operations are ordered in the stream that they are given; counts
// are elements of the type. Sums of a fixed number of ranks are repeatable bit for bit.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // ---- device memory, in stream order
  // data ← Σ over ranks, in place.
  virtual void all_reduce(Stream& stream, void* data, std::int64_t count, DType type) = 0;
  // out(size · count) ← every rank's in(count), in the order of ranks; in may be its own part of out.
  virtual void all_gather(Stream& stream, const void* in, void* out, std::int64_t count, DType type) = 0;
  // out(count) ← this rank's part of Σ in(size · count); out may be that part of in.
  virtual void reduce_scatter(Stream& stream, const void* in, void* out, std::int64_t count, DType type) = 0;
  virtual void broadcast(Stream& stream, void* data, std::int64_t count, DType type, int root) = 0;
  // Rank r gets in[r · count …) of every rank.
  virtual void all_to_all(Stream& stream, const void* in, void* out, std::int64_t count, DType type) = 0;
  // Sends and receives between group_begin and group_end proceed together, whatever their order.
  virtual void group_begin() = 0;
  virtual void group_end(Stream& stream) = 0;
  virtual void send(Stream& stream, const void* data, std::int64_t count, DType type, int to) = 0;
  virtual void receive(Stream& stream, void* data, std::int64_t count, DType type, int from) = 0;

  // ---- host values; the call returns when they are there
  virtual void sum_host(std::span<double> values) = 0;
  virtual void sum_host(std::span<std::int64_t> values) = 0;
  virtual void max_host(std::span<double> values) = 0;
  virtual void max_host(std::span<std::int64_t> values) = 0;
  // Every rank's text, in the order of ranks, on every rank.
  virtual std::vector<std::string> gather_host(const std::string& text) = 0;
  virtual void barrier() = 0;

  // Bytes of device memory that this rank has sent, by the least that the operation needs: docs/parallelism.md.
  virtual std::int64_t bytes_sent() const = 0;
};

}  // namespace forge
