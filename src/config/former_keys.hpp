#pragma once

#include <string>

namespace forge {

// A key of earlier versions.
struct FormerKey {
  const char *section, *name;
  const char* key;            // its name today, "section.key"; "": it has none
  const char* meant_nothing;  // of a key that is gone: the values, parted by spaces, that changed nothing; an empty one
                              // never did
  const char* instead;        // of a key that is gone: what there is now
};

// nullptr where no earlier version had such a key.
const FormerKey* former_key(const std::string& section, const std::string& name);

}  // namespace forge
