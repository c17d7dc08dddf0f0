#pragma once

#include <string>

namespace forge {

// The revision of the built sources: "62228b2c1a3f", or "62228b2c1a3f with changes"; "unknown revision" without a git
// repository of their own. Found at each build; only the programs that link it are made anew.
std::string program_revision();

// "0.7.0": a library that doesn't say it itself.
std::string yaml_cpp_version();

}  // namespace forge
