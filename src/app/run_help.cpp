#include <boost/version.hpp>
#include <cstdio>
#include <utility>
#include <vector>

#include "app/verb_help.hpp"
#include "app/verbs.hpp"
#include "checkpoint/hdf5_version.hpp"
#include "comm/library_versions.hpp"
#include "config/write_deck.hpp"
#include "core/build_info.hpp"
#include "device/device_version.hpp"
#include "kernels/attention/attention_cudnn.hpp"
#include "kernels/experts/grouped_cutlass.hpp"
#include "kernels/products_version.hpp"
#include "text/zlib_version.hpp"
#include "train/job_report.hpp"

namespace forge {

namespace {

// "1.74.0"
std::string boost_version() {
  return std::to_string(BOOST_VERSION / 100000) + "." + std::to_string(BOOST_VERSION / 100 % 1000) + "." +
         std::to_string(BOOST_VERSION % 100);
}

}  // namespace

void run_help(const CommandLine& line) {
  std::string text;
  if (line.markdown)
    text = inputs_markdown();
  else if (line.inputs.empty())
    text = usage();
  else
    text = help_of_name(line.inputs.front());
  std::fputs(text.c_str(), stdout);
}

void run_version() {
  std::printf("%s\nrevision   %s\nlibraries  %s, HDF5 %s, %s, yaml-cpp %s, Boost %s, zlib %s",
              build_description().c_str(), program_revision().c_str(), mpi_version().c_str(), hdf5_version().c_str(),
              products_library_version().c_str(), yaml_cpp_version().c_str(), boost_version().c_str(),
              zlib_library_version().c_str());
  if (const std::string device = device_library(); !device.empty())
    std::printf(", %s, NCCL %s", device.c_str(), nccl_version().c_str());
  std::printf("%s%s\n", cudnn_built_in() ? ", cuDNN" : "", cutlass_built_in() ? ", CUTLASS" : "");
}

}  // namespace forge
