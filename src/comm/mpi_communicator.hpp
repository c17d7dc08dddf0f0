#pragma once

#include <memory>

#include "comm/communicator.hpp"

namespace forge {

// A communicator over MPI, between host buffers. Device operations run in their stream's order: in a Worker behind the
// computation, which is why MPI_THREAD_MULTIPLE is required. Owns two MPI communicators, one of them for host values.
//
// Long sums are a pairwise reduce-scatter and a ring of gathers (Thakur, Rabenseifner & Gropp, "Optimization of
// collective communication operations in MPICH", 2005) in messages of bounded length: the operand is summed in place
// with two messages of memory besides, and no count of MPI's int is ever exceeded.
class MpiCommunicator final : public Communicator {
 public:
  static constexpr std::int64_t default_message_bytes = 512 << 10;

  // The ranks of MPI_COMM_WORLD; collective. `oversubscribed`: more ranks than cores, so that a waiting one gives its
  // core away. message_bytes: the length above which a buffer goes in pieces.
  static std::unique_ptr<Communicator> world(bool oversubscribed, std::int64_t message_bytes = default_message_bytes);
  ~MpiCommunicator() override;

 protected:
  void do_all_reduce(Stream&, std::byte* data, std::int64_t count, DType) override;
  void do_all_reduce_max(Stream&, std::byte* data, std::int64_t count, DType) override;
  void do_all_gather(Stream&, const std::byte* in, std::byte* out, std::int64_t count, DType) override;
  void do_reduce_scatter(Stream&, const std::byte* in, std::byte* out, std::int64_t count, DType) override;
  void do_broadcast(Stream&, std::byte* data, std::int64_t count, DType, int root) override;
  void do_exchange(Stream&, std::span<const Transfer>) override;
  void do_gather_host(const std::byte* in, std::byte* out, std::size_t bytes) override;
  void do_collect_host(const std::string& text, int root, const std::function<void(const std::string&)>& take) override;
  void do_collect_host(std::int64_t number, std::int64_t* all, int root) override;
  using Communicator::do_reduce_host;  // of doubles
  void do_reduce_host(std::span<std::int64_t> values, HostReduction reduction) override;
  void do_broadcast_host(std::byte* data, std::size_t bytes, int root) override;
  std::unique_ptr<Communicator> do_split(int color, int key) override;
  std::unique_ptr<Communicator> do_node() override;
  std::unique_ptr<Communicator> do_cartesian(const Grid& grid) override;           // MPI_Cart_create, no reordering
  std::unique_ptr<Communicator> do_sub(const Grid& grid, AxisBits axes) override;  // MPI_Cart_sub

 private:
  struct Implementation;
  struct Part;
  explicit MpiCommunicator(std::unique_ptr<Implementation> impl);
  std::unique_ptr<Communicator> adopt(Part part) const;

  std::unique_ptr<Implementation> impl_;
};

}  // namespace forge
