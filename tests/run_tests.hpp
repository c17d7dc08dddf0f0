#pragma once

namespace forge::test {

// Runs the tests that the command line chooses (GoogleTest's options). A choice that nothing matches fails, and with
// --expect-tests=N one that matches another number of tests. Returns main()'s exit code.
int run_tests(int argc, char** argv);

}  // namespace forge::test
