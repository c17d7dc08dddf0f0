#pragma once

#include <string>
#include <vector>

namespace forge {

// The folders of a name ("inputs/machines") that are there, each once: below the working directory, below FORGE_ROOT,
// in the source tree of the build that the program is in, and in the share/forge of its installation. The first one
// wins.
std::vector<std::string> shared_folders(const std::string& name);

// "a100_8, h100_8": the .yaml files of these folders, sorted, without their endings; "none".
std::string shared_names(const std::string& name);

// The file of such a folder by its name, also with ".yaml" or in capital letters; a path with a slash, and a file of
// the working directory that no such name hides, are themselves. Throws BadInput naming the files there: "no machine
// 'x'; legal: a file, or of inputs/machines: …". `what`: "machine".
std::string shared_file(const std::string& name, const char* what, const std::string& folder);

}  // namespace forge
