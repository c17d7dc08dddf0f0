#include "app/libraries.hpp"

#include <boost/version.hpp>

#include "checkpoint/hdf5_version.hpp"
#include "comm/library_versions.hpp"
#include "core/build_info.hpp"
#include "device/device_memory.hpp"
#include "kernels/attention/attention_cudnn.hpp"
#include "kernels/experts/grouped_cutlass.hpp"
#include "kernels/products_version.hpp"
#include "text/zlib_version.hpp"

namespace forge {

namespace {

using Library = std::pair<std::string, std::string>;

// "1.74.0"
std::string boost_version() {
  return std::to_string(BOOST_VERSION / 100000) + "." + std::to_string(BOOST_VERSION / 100 % 1000) + "." +
         std::to_string(BOOST_VERSION % 100);
}

// "oneDNN 2.6.0", "CUDA 12.4, driver for 12.6": the name is the first word.
Library named(const std::string& text) {
  const std::size_t space = text.find(' ');
  return space == std::string::npos ? Library{text, ""} : Library{text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

std::vector<Library> libraries() {
  std::vector<Library> list{
      {"MPI", mpi_version()},           {"HDF5", hdf5_version()},   named(products_library_version()),
      {"yaml-cpp", yaml_cpp_version()}, {"Boost", boost_version()}, {"zlib", zlib_library_version()}};
  if (const std::string device = device_library(); !device.empty()) {
    list.push_back(named(device));
    list.emplace_back("NCCL", nccl_version());
  }
  if (cudnn_built_in()) list.emplace_back("cuDNN", "");
  if (cutlass_built_in()) list.emplace_back("CUTLASS", "");
  return list;
}

}  // namespace forge
