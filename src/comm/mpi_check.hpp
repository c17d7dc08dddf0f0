#pragma once

// Without the C++ bindings that MPI 3 took out.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <source_location>
#include <string>

#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

// Throws when an MPI call failed; the message carries the call and MPI's own text.
inline void mpi_check(int status, const char* call, std::source_location where = std::source_location::current()) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw LibraryFailed(std::string(call) + ": " + std::string(text, to_size(length)), where);
}

}  // namespace forge
