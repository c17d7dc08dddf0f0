#pragma once

// Leaves out the C++ bindings, which MPI 3 removed.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <source_location>
#include <string>

#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

// Throws when an MPI call failed; the message carries the call and MPI's own text, and a hint where this text means
// nothing: Open MPI reports an internal error when the process that it wants to reach is gone.
inline void mpi_check(int status, const char* call, std::source_location where = std::source_location::current()) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0, kind = MPI_SUCCESS;
  MPI_Error_string(status, text, &length);
  MPI_Error_class(status, &kind);
  const bool is_vague = kind == MPI_ERR_INTERN || kind == MPI_ERR_OTHER || kind == MPI_ERR_UNKNOWN;
  throw LibraryFailed(std::string(call) + ": " + std::string(text, to_size(length)) +
                          (is_vague ? "; a rank or its node may be gone: the launcher names it" : ""),
                      where);
}

}  // namespace forge
