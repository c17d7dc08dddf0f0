#include "parallel/transfers.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "comm/device_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "device/device_memory.hpp"

// Activations between two stages whose ranks keep one slot each: every event that Transfers gives is needed in many of
// the rounds, whatever order a device takes its streams in.

namespace forge::test {
namespace {

constexpr int rounds = 200;
constexpr std::int64_t n = 16;

Action action_of(Op op, int round, int peer) {
  return {op, 0, round, peer};
}

// Round r sends r, from a slot that round r + 1 writes into.
void send_all(Transfers& transfers, Stream& compute, const std::vector<double>& numbers) {
  const Buffer slot(n * sizeof(double));
  for (int r = 0; r < rounds; ++r) {
    if (r > 0) transfers.run(compute, action_of(Op::wait_send_forward, r - 1, 1));
    copy_to_device(compute, slot.data(), numbers.data() + r * n, n * sizeof(double));
    transfers.run(compute, action_of(Op::post_send_forward, r, 1), slot.data(), n, DType::f64);
  }
  transfers.run(compute, action_of(Op::wait_send_forward, rounds - 1, 1));
  compute.synchronize();
}

std::vector<double> receive_all(Transfers& transfers, Stream& compute) {
  const Buffer slot(n * sizeof(double)), kept(rounds * n * sizeof(double));
  for (int r = 0; r < rounds; ++r) {
    transfers.run(compute, action_of(Op::post_recv_forward, r, 0), slot.data(), n, DType::f64);
    transfers.run(compute, action_of(Op::wait_recv_forward, r, 0));
    copy_on_device(compute, kept.data() + static_cast<std::size_t>(r * n) * sizeof(double), slot.data(),
                   n * sizeof(double));
  }
  std::vector<double> values(rounds * n);
  copy_to_host(compute, values.data(), kept.data(), values.size() * sizeof(double));
  compute.synchronize();
  return values;
}

TEST(Transfers, KeepWhatIsStillReadAndWritten) {
  std::vector<double> numbers(rounds * n), received;
  std::iota(numbers.begin(), numbers.end(), 1.0);
  run_ranks(2, [&](Communicator& world) {
    const auto device = device_communicator(world);
    Stream compute;
    Transfers transfers(*device);
    if (world.rank() == 0)
      send_all(transfers, compute, numbers);
    else
      received = receive_all(transfers, compute);
    transfers.finish();
    world.barrier();
  });
  EXPECT_EQ(received, numbers);
}

}  // namespace
}  // namespace forge::test
