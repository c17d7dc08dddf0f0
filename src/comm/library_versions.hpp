#pragma once

#include <string>

namespace forge {

// "Open MPI v4.1.4": of the library that this process runs with.
std::string mpi_version();
// "2.18.3"; empty in the CPU build.
std::string nccl_version();

}  // namespace forge
