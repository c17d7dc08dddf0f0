#pragma once

#include <string>

namespace forge {

// Whether a path that isn't there may be meant as a name at the Hugging Face hub.
enum class PathUse { file, model };

// The rest of a message "…: No such file or directory", beginning with "; ": why a path names nothing that is there
// (~, a variable, a URL, a pattern, a hub's name, a link that leads nowhere), or for a relative path the directory in
// which it was looked for. "": the path exists, or there is nothing to say.
std::string path_hint(const std::string& path, PathUse use = PathUse::model);

// Why a path that isn't there yet must not be made under this name: "~ is not expanded here; legal: …", or a variable,
// a URL, "-". "": it may be.
std::string unexpanded(const std::string& path);

// The file or directory whose name differs least from a path that isn't there: in case, in its ending, by a letter or
// two. "": none is near.
std::string near_file(const std::string& path);

}  // namespace forge
