#pragma once

#include <mpi.h>

#include <atomic>
#include <vector>

#include "comm/communicator.hpp"

namespace forge {

// Over MPI, between host buffers. Owns its MPI communicator. Device operations run in the order of their stream: in a
// Worker stream behind the computation, which is why MPI_THREAD_MULTIPLE is required.
class MpiCommunicator final : public Communicator {
 public:
  // A duplicate of `parent`.
  explicit MpiCommunicator(MPI_Comm parent);
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Stream&, void* data, std::int64_t count, DType) override;
  void all_gather(Stream&, const void* in, void* out, std::int64_t count, DType) override;
  void reduce_scatter(Stream&, const void* in, void* out, std::int64_t count, DType) override;
  void broadcast(Stream&, void* data, std::int64_t count, DType, int root) override;
  void all_to_all(Stream&, const void* in, void* out, std::int64_t count, DType) override;
  void group_begin() override;
  void group_end(Stream&) override;
  void send(Stream&, const void* data, std::int64_t count, DType, int to) override;
  void receive(Stream&, void* data, std::int64_t count, DType, int from) override;
  void sum_host(std::span<double> values) override;
  void sum_host(std::span<std::int64_t> values) override;
  void max_host(std::span<double> values) override;
  void max_host(std::span<std::int64_t> values) override;
  std::vector<std::string> gather_host(const std::string& text) override;
  void barrier() override;
  std::int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  struct Transfer {
    void* data;
    std::int64_t count;
    DType type;
    int peer;
    bool sends;
  };
  void run_transfers(const std::vector<Transfer>& transfers);
  void transfer(Stream&, Transfer);
  void count_bytes(std::int64_t elements, DType type) { bytes_sent_ += elements * static_cast<std::int64_t>(size_of(type)); }

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Op add_bf16_ = MPI_OP_NULL;
  int rank_ = 0, size_ = 1;
  bool grouping_ = false;
  std::vector<Transfer> group_;
  std::atomic<std::int64_t> bytes_sent_{0};
};

}  // namespace forge
