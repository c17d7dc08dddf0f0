#include <gtest/gtest.h>

#include <memory>

#include "comm/environment.hpp"
#include "device/device_memory.hpp"
#include "run_tests.hpp"

// main() of tests that communicate: MPI lives as long as the tests; only rank 0 prints what passed.
namespace forge::test {

// Set once by main, before any test runs.
Environment* environment = nullptr;

}  // namespace forge::test

int main(int argc, char** argv) {
  forge::Watchdog watchdog({0, 0}, "tests", [](const forge::Watchdog::Missed&) {});
  forge::Environment environment(argc, argv, watchdog);
  forge::test::environment = &environment;
  forge::select_device(environment.local_rank());
  if (environment.rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int failed = forge::test::run_tests(argc, argv);
  if (failed && environment.size() > 1) environment.abort(failed);
  return failed;
}
