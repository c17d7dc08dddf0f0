#include "app/candidates.hpp"

#include "core/error.hpp"

namespace forge {

namespace {

class CsvReader {
 public:
  CsvReader(const std::string& text, const std::string& source) : text_(text), source_(source) {}

  CsvTable read() {
    CsvTable table;
    if (!record(table.head) || table.head == std::vector<std::string>{""})
      fail("no head; legal: names of columns, then rows");
    for (std::vector<std::string> cells; record(cells);) {
      if (cells == std::vector<std::string>{""}) continue;  // an empty line
      if (cells.size() != table.head.size())
        fail("has " + std::to_string(cells.size()) + " cells, the head has " + std::to_string(table.head.size()));
      table.rows.push_back(cells);
    }
    return table;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw BadInput(source_ + ":" + std::to_string(line_) + ": " + what);
  }
  bool at_end() const { return at_ == text_.size(); }

  bool record(std::vector<std::string>& cells) {
    cells.clear();
    if (at_end()) return false;
    ++line_;
    for (bool more = true; more;) cells.push_back(cell(more));
    return true;
  }
  // `more`: whether another cell of the record follows.
  std::string cell(bool& more) {
    std::string value;
    if (!at_end() && text_[at_] == '"')
      value = quoted();
    else
      while (!at_end() && text_[at_] != ',' && text_[at_] != '\n') value += text_[at_++];
    if (!value.empty() && value.back() == '\r') value.pop_back();
    if (!at_end() && text_[at_] == '\r') ++at_;
    more = !at_end() && text_[at_] == ',';
    if (!at_end() && text_[at_] != ',' && text_[at_] != '\n') fail("text behind a closing quote");
    if (!at_end()) ++at_;
    return value;
  }
  std::string quoted() {
    std::string value;
    for (++at_; !at_end(); ++at_) {
      if (text_[at_] != '"') {
        value += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        value += text_[at_++];
      } else {
        ++at_;
        return value;
      }
    }
    fail("a quote that is not closed");
  }

  const std::string& text_;
  const std::string& source_;
  std::size_t at_ = 0;
  int line_ = 0;
};

std::string cell_text(const std::string& value) {
  if (value.find_first_of(",\"\n\r") == std::string::npos) return value;
  std::string text = "\"";
  for (const char c : value) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) line += (i ? "," : "") + cell_text(cells[i]);
  return line + "\n";
}

}  // namespace

CsvTable read_csv(const std::string& text, const std::string& source) {
  return CsvReader(text, source).read();
}

std::string write_csv(const CsvTable& table) {
  std::string text = line_of(table.head);
  for (const auto& row : table.rows) text += line_of(row);
  return text;
}

}  // namespace forge
