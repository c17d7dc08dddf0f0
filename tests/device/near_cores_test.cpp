#include "device/near_cores.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace forge {
namespace {

TEST(NearCores, Lists) {
  EXPECT_EQ(cores_from("0-3,8"), (Cores{0, 1, 2, 3, 8}));
  EXPECT_EQ(cores_from("8,1-2"), (Cores{1, 2, 8}));
  EXPECT_EQ(list_of({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  for (const char* odd : {"", "x", "1-", "3-1", "-1", "1,,2", "1;2", "99999", "0-99999999999999"})
    EXPECT_TRUE(cores_from(odd).empty()) << odd;
  EXPECT_EQ(cores_from(list_of(own_cores())), own_cores());
}

// Two sockets of eight cores with two threads each: 0-7,16-23 and 8-15,24-31; GPUs 0 and 1 near the first, 2 and 3 near
// the second.
const Cores first = cores_from("0-7,16-23"), second = cores_from("8-15,24-31");
std::vector<RankCores> ranks_with(const std::vector<std::string>& own) {
  std::vector<RankCores> ranks;
  for (std::size_t r = 0; r < own.size(); ++r)
    ranks.push_back({cores_from(own[r]), r < own.size() / 2 ? first : second});
  return ranks;
}
std::vector<std::string> shared(const std::vector<RankCores>& ranks) {
  std::vector<std::string> lists;
  for (std::size_t r = 0; r < ranks.size(); ++r) lists.push_back(list_of(shared_out(ranks, r)));
  return lists;
}

TEST(NearCores, ASharedNodeIsSharedOut) {
  const std::vector<std::string> parts{"0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"};
  EXPECT_EQ(shared(ranks_with({"0-31", "0-31", "0-31", "0-31"})), parts);
  // A launcher that went around the sockets.
  EXPECT_EQ(shared(ranks_with({"0-3,16-19", "8-11,24-27", "4-7,20-23", "12-15,28-31"})), parts);
  EXPECT_EQ(shared(ranks_with(parts)), parts);
  // One thread of each second core alone.
  EXPECT_EQ(shared(ranks_with({"0,2", "8,10", "4,6", "12,14"})),
            (std::vector<std::string>{"0,2", "4,6", "8,10", "12,14"}));
}

TEST(NearCores, WhoWouldLoseKeepsItsOwn) {
  const std::vector<std::string> own{"0-3", "4-7", "8-11", "12-15"};
  auto ranks = ranks_with(own);
  for (RankCores& r : ranks) r.near = first;  // half of the node for all
  EXPECT_EQ(shared(ranks), own);
  ranks = ranks_with(own);
  ranks[3].near = {};
  EXPECT_EQ(shared(ranks), own);
}

TEST(NearCores, ADeviceOfTheSystem) {
  const std::filesystem::path devices =
      std::filesystem::temp_directory_path() / ("near_cores_" + std::to_string(getpid()));
  std::filesystem::create_directories(devices / "0000:1b:00.0");
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(devices / "0000:1b:00.0" / name) << text << "\n";
  };
  write("local_cpulist", "0-7,16-23");
  write("numa_node", "0");
  EXPECT_EQ(cores_near("0000:1B:00.0", devices), first);
  write("numa_node", "-1");
  EXPECT_TRUE(cores_near("0000:1B:00.0", devices).empty());
  EXPECT_TRUE(cores_near("0000:99:00.0", devices).empty());
  std::filesystem::remove_all(devices);
}

}  // namespace
}  // namespace forge
