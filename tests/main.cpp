#include "run_tests.hpp"

// main() of tests without MPI.
int main(int argc, char** argv) {
  return forge::test::run_tests(argc, argv);
}
