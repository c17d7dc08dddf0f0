#include "run_tests.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace forge::test {

namespace {

constexpr std::string_view expect = "--expect-tests=";

}  // namespace

int run_tests(int argc, char** argv) {
  // A part that is counted is no half: tests/run.sh sets the halves of a whole executable.
  for (int i = 1; i < argc; ++i) {
    if (!std::string_view(argv[i]).starts_with(expect)) continue;
    unsetenv("GTEST_TOTAL_SHARDS");
    unsetenv("GTEST_SHARD_INDEX");
  }
  testing::InitGoogleTest(&argc, argv);
  int expected = -1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(expect)) {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
    expected = std::atoi(argv[i] + expect.size());
  }
  const int failed = RUN_ALL_TESTS();
  if (testing::GTEST_FLAG(list_tests)) return failed;
  const int chosen = testing::UnitTest::GetInstance()->test_to_run_count();
  if (chosen > 0 && (expected < 0 || chosen == expected)) return failed;
  std::fprintf(stderr, "%d tests match %s", chosen, testing::GTEST_FLAG(filter).c_str());
  if (expected >= 0) std::fprintf(stderr, ", %d are expected", expected);
  std::fprintf(stderr, "\n");
  return 1;
}

}  // namespace forge::test
