#include "train/busy_cores.hpp"

#include <gtest/gtest.h>

namespace forge {
namespace {

TEST(BusyCores, AreToldOnce) {
  BusyCores cores(2);
  EXPECT_EQ(cores.at(100, 7), "");  // from here on
  EXPECT_EQ(cores.at(102, 7.1), "");
  EXPECT_FALSE(cores.sleeps());
  const std::string line = cores.at(104, 8.1);
  EXPECT_NE(line.find("waits for a core 50 % of the time"), std::string::npos) << line;
  EXPECT_NE(line.find("machine.threads=1"), std::string::npos) << line;
  EXPECT_TRUE(cores.sleeps());
  EXPECT_EQ(cores.at(106, 9.1), "");
}

// Threads sleep for as long as the cores are busy, and half a minute longer.
TEST(BusyCores, EndWithTheOtherWork) {
  BusyCores cores(2);
  cores.at(0, 0);
  cores.at(2, 1);
  EXPECT_TRUE(cores.sleeps());
  cores.at(20, 1.01);
  EXPECT_TRUE(cores.sleeps());
  cores.at(34, 1.02);
  EXPECT_FALSE(cores.sleeps());
}

// One thread waits for no other.
TEST(BusyCores, OfOneThread) {
  BusyCores cores(1);
  cores.at(0, 0);
  const std::string line = cores.at(2, 1);
  EXPECT_NE(line.find("50 %"), std::string::npos) << line;
  EXPECT_EQ(line.find("machine.threads"), std::string::npos) << line;
  EXPECT_FALSE(cores.sleeps());
}

}  // namespace
}  // namespace forge
