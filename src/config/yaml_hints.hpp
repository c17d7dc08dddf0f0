#pragma once

#include <string>

#include "config/report.hpp"

namespace forge {

// Why a text isn't the YAML that its writer meant, as far as its `last` line (from 1), where the parser stopped: a
// tab, an indentation, a colon that is missing, another format. A guess at a person's mistake: the parser alone knows
// YAML.
struct YamlHint {
  int line = 0;      // from 1; 0: of the whole text
  std::string text;  // "a tab indents the line, '\x09layers: 2'; legal: spaces"; empty where nothing looks wrong
};
YamlHint yaml_hint(const std::string& text, int last);

// Whether a text has the size and the characters of YAML; the report gets the reason.
bool is_yaml_text(const std::string& text, const std::string& name, Report& report);

// "'  layers: 2'": a line of a text.
std::string shown_line(const std::string& text, int line);

}  // namespace forge
