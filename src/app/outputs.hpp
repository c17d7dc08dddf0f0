#pragma once

#include <list>
#include <string>

#include "app/command_line.hpp"
#include "config/deck.hpp"
#include "config/output_lock.hpp"

namespace forge {

// BadInput where the command line writes to a file that can't be one, or reads it too, or names it twice. Looks at
// names only.
void check_outputs(const CommandLine& line);
// Likewise for the files that a deck names.
void check_outputs(const CommandLine& line, const Deck& deck);
// A lock for each file that the command line writes.
std::list<OutputLock> lock_outputs(const CommandLine& line);

// Descriptors 0 to 2 that are closed are taken, so that no file gets them; using them fails as before.
void keep_standard_descriptors();
// "", or why standard output has lost some of the text printed.
std::string lost_output();

}  // namespace forge
