#pragma once

namespace forge {

// Runs the program as main does: with as many open files as the hard limit allows, on a stack that is large enough, and
// so that no library ends the process by exit() without an error of forge's.
int run_process(int (*program)(int argc, char** argv), int argc, char** argv);

// From here on forge itself ends the process.
void expect_end();

}  // namespace forge
