#pragma once

#include <string>

#include "config/keys.hpp"
#include "config/yaml.hpp"

namespace forge {

// The value of an option "section.key=value" as a deck's value. Texts and paths are taken as typed, whatever they hold;
// in quotes they are YAML. Of other keys, null where there is none of the name, lists, maps and texts in quotes are
// YAML, and may hold no comment, which would cut them; the rest is one word as typed. Nothing, null and ~ are null.
// False where it isn't YAML, which is reported under `name`.
bool read_option(const std::string& typed, const std::string& name, const Key* key, YamlNode& value, Report& report);

}  // namespace forge
