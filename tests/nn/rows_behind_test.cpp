#include <gtest/gtest.h>

#include "../device_values.hpp"
#include "block_rig.hpp"
#include "comm/device_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "device/hold_stream.hpp"
#include "nn/rows.hpp"

// Rows of tp ranks that travel in the stream of exchanges.

namespace forge::test {
namespace {

using Values = std::vector<double>;

class RowsBehindCompute : public testing::Test {
  void SetUp() override {
#if defined(FORGE_CUDA) && !defined(FORGE_VGPU)
    GTEST_SKIP() << "ranks are threads with one GPU, which NCCL refuses";
#endif
  }
};

// Whatever else the stream of exchanges does first, rows and sums are there when they have been waited for; who comes
// before that finds them on their way.
TEST_F(RowsBehindCompute, AreThereBehindTheirWait) {
  run_ranks(2, [](Communicator& world) {
    const auto device = device_communicator(world);
    const auto tp = device->split(0, device->rank());
    BlockRig rig(small_model(), Recompute::none);
    Stream exchange(1, Stream::Kind::Worker);
    rig.services.groups = {.tp = device.get(), .stream = &exchange, .tp_behind = tp.get()};
    DeviceArray<std::byte, 1> from(rig.stream, {{64}}), to(rig.stream, {{64}});
    const auto hold = [&] { hold_stream(exchange, {1, 0.05, to.view().data, from.view().data, 64, 64}); };

    const double r = world.rank();
    DeviceArray<double, 2> own(rig.stream, {{2, 2}}, {r, r + 2, r + 4, r + 6}), all(rig.stream, {{4, 2}});
    DeviceArray<double, 2> partial(rig.stream, {{4, 2}}, {1, 2, 3, 4, 5, 6, 7, 8 + r}), sum(rig.stream, {{2, 2}});
    RowsBehind<double> behind(rig.context);
    hold();
    EXPECT_EQ(behind.gather(own.view(), {}, all.view()).data, all.view().data);
    EXPECT_THROW(behind.reduce(partial.view(), sum.view()), Error);
    behind.wait();
    EXPECT_EQ(all.get(), (Values{0, 2, 4, 6, 1, 3, 5, 7}));
    hold();
    behind.reduce(partial.view(), sum.view());
    behind.wait();
    EXPECT_EQ(sum.get(), r == 0 ? (Values{2, 4, 6, 8}) : (Values{10, 12, 14, 17}));
    // What recomputation has kept isn't gathered.
    const Traffic before = tp->traffic();
    EXPECT_EQ(behind.gather(own.view(), all.view(), sum.view()).data, all.view().data);
    behind.wait();
    EXPECT_EQ(tp->traffic().total_calls(), before.total_calls());
    world.barrier();
  });
}

}  // namespace
}  // namespace forge::test
