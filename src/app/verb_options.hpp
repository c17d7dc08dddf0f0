#pragma once

#include <boost/program_options.hpp>

#include "app/command_line.hpp"

namespace forge {

// The options of a verb, bound to the fields that they fill.
boost::program_options::options_description options_of(Verb verb, CommandLine& c);

}  // namespace forge
