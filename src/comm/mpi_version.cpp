#include "comm/library_versions.hpp"
#include "comm/mpi_check.hpp"

namespace forge {

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  mpi_check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  // Name and number; some say how they were built behind a comma, on further lines, or behind tabs.
  std::string version;
  for (const char c : std::string(text, to_size(length))) {
    if (c == ',' || c == '\n' || c == '\0') break;
    if (c != ' ' && c != '\t')
      version += c;
    else if (!version.empty() && version.back() != ' ')
      version += ' ';
  }
  return version;
}

}  // namespace forge
