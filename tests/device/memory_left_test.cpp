#include "device/memory_left.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "device/core_use.hpp"
#include "device/threads.hpp"

namespace forge {
namespace {

namespace fs = std::filesystem;

// A tree of the files that the kernel shows.
class MemoryLeftOfNode : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / "memory_left";
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal: 4000000 kB\nMemFree: 1 kB\nMemAvailable: 1000000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void expect(std::size_t bytes, const std::string& limit) {
    const auto left = node_memory_left(root_);
    ASSERT_TRUE(left);
    EXPECT_EQ(left->bytes, bytes);
    EXPECT_EQ(left->limit, limit);
  }

  fs::path root_;
};

TEST_F(MemoryLeftOfNode, IsMemAvailable) {
  expect(1000000 * 1024, "MemAvailable");
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/memory.max", "max\n");
  write("sys/fs/cgroup/job/memory.current", "5\n");
  expect(1000000 * 1024, "MemAvailable");
}

// The tightest of a cgroup and those around it; what was read of files is free.
TEST_F(MemoryLeftOfNode, IsWhatCgroupsLeave) {
  write("proc/self/cgroup", "0::/slurm/job/step\n");
  write("sys/fs/cgroup/slurm/job/memory.max", "8000000\n");
  write("sys/fs/cgroup/slurm/job/memory.current", "5000000\n");
  write("sys/fs/cgroup/slurm/job/memory.stat", "anon 1\ninactive_file 2000000\n");
  write("sys/fs/cgroup/slurm/job/step/memory.max", "9000000\n");
  write("sys/fs/cgroup/slurm/job/step/memory.current", "1000000\n");
  expect(5000000, "memory.max of the cgroup /slurm/job");
  write("sys/fs/cgroup/slurm/job/memory.current", "90000000\n");
  expect(0, "memory.max of the cgroup /slurm/job");
}

TEST_F(MemoryLeftOfNode, IsWhatTheFirstVersionLeaves) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000000\n");  // in a container only the mount is there
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "4000000\n");
  write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 500000\n");
  expect(3500000, "memory.limit_in_bytes of the cgroup /");
}

TEST(MemoryLeft, IsKnownHere) {
  const auto left = node_memory_left();
  ASSERT_TRUE(left);
  EXPECT_GT(left->bytes, std::size_t{1} << 20);
  EXPECT_FALSE(node_memory_left("/nonexistent"));
}

// More threads than a process can have are refused, and none of those that were tried stays.
TEST(Threads, AreStarted) {
  EXPECT_NO_THROW(start_threads(1));
  EXPECT_NO_THROW(start_threads(3));
  EXPECT_GT(cores_of_rank(1), 0);
  EXPECT_LT(cores_of_rank(1 << 20), 1);
  const ShortWaits waits;
  EXPECT_NO_THROW(start_threads(3));
}

}  // namespace
}  // namespace forge
