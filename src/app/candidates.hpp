#pragma once

#include <string>
#include <vector>

namespace forge {

// A table of comma-separated values with a head (RFC 4180): cells with commas or quotes stand in quotes.
struct CsvTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  // each as long as the head
};
// Reads untrusted text; `source` names it in messages. Throws BadInput with "source:line: …".
CsvTable read_csv(const std::string& text, const std::string& source);
std::string write_csv(const CsvTable& table);

}  // namespace forge
