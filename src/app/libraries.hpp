#pragma once

#include <string>
#include <utility>
#include <vector>

namespace forge {

// Names and versions of the libraries that this process runs with: {"MPI", "Open MPI v4.1.4"}, {"HDF5", "1.10.8"}, … ;
// of those that are built in without a version of their own {"cuDNN", ""}.
std::vector<std::pair<std::string, std::string>> libraries();

}  // namespace forge
