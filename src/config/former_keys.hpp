#pragma once

#include <string>

namespace forge {

// A key of earlier versions.
struct FormerKey {
  const char *section, *name;
  const char* key;  // its name today, "section.key"; "": it has none
  // Of a key that is gone: the values, parted by spaces, that changed nothing; an empty one never did. "*": no value
  // changed what is computed, at most how fast, so that a restart may have any.
  const char* meant_nothing;
  const char* instead;  // of a key that is gone: what there is now
};

// nullptr where no earlier version had such a key.
const FormerKey* former_key(const std::string& section, const std::string& name);

}  // namespace forge
