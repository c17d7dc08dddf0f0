#pragma once

#include <cstdint>

namespace forge {

// Faults on purpose, in builds with tests: FORGE_FAULT=kind:rank:step[:arg] in the environment makes that rank, at the
// start of that step, end by SIGKILL (kill), stop by SIGSTOP (stop), compute without end (hang), or sleep `arg` seconds
// (slow). Builds without tests know none of it. Throws BadInput where the text is none of these.
void inject_fault(int rank, std::int64_t step);

}  // namespace forge
