#include "config/yaml.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <set>
#include <sstream>

#include "config/text.hpp"
#include "config/yaml_hints.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Ends the parser early, after what is wrong went into the report.
struct Stop {};

std::string place(const std::string& name, const YAML::Mark& mark) {
  return name + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
}

// What a person mistook in a text that isn't YAML; false: nothing is known.
bool add_hint(const std::string& text, const std::string& name, int last, Report& report) {
  const YamlHint hint = yaml_hint(text, last);
  if (hint.text.empty()) return false;
  report.add(hint.line > 0 ? name + ":" + std::to_string(hint.line) : name, "not YAML: " + hint.text);
  return true;
}

// The byte at a mark, 0 behind the end.
class Source {
 public:
  explicit Source(const std::string& text) : text_(text) {
    starts_.push_back(0);
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') starts_.push_back(i + 1);
  }
  char at(const YAML::Mark& mark) const {
    if (mark.line < 0 || mark.column < 0 || to_size(mark.line) >= starts_.size()) return 0;
    const std::size_t i = starts_[to_size(mark.line)] + to_size(mark.column);
    return i < text_.size() ? text_[i] : 0;
  }

 private:
  const std::string& text_;
  std::vector<std::size_t> starts_;
};

// Builds the tree from the parser's events and refuses what a deck has no use for.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& text, const std::string& name, Report& report)
      : text_(text), source_(text), name_(name), report_(report) {}

  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    if (!add_hint(text_, name_, mark.line, report_)) report_.add(place(name_, mark), "a second document; legal: one");
    throw Stop{};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    place_node(mark, node(YamlNode::Kind::null, mark));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    report_.add(place(name_, mark), "an alias (*name); aliases are not allowed, write the value out");
    place_node(mark, node(YamlNode::Kind::unusable, mark));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    YamlNode scalar = node(YamlNode::Kind::scalar, mark);
    scalar.text = value;
    scalar.plain = tag == "?";
    place_node(mark, std::move(scalar));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  // A list or map whose end hasn't come.
  struct Frame {
    YamlNode node;
    bool has_key = false, duplicate = false;
    YamlNode::Entry entry;
    std::set<std::string> names;
  };

  static YamlNode node(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode result;
    result.kind = kind;
    result.line = mark.line + 1;
    result.column = mark.column + 1;
    return result;
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) report_.add(place(name_, mark), "an anchor (&name); anchors are not allowed");
  }

  // yaml-cpp says "?" for plain and "!" for quoted scalars, and "!" also for the explicit tag "!".
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || (tag == "!" && source_.at(mark) != '!')) return;
    report_.add(place(name_, mark), "a tag (!type); tags are not allowed");
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (expects_key()) refuse_key(mark);
    if (frames_.size() >= to_size(most_yaml_depth)) {
      report_.add(place(name_, mark), "nested deeper than " + std::to_string(most_yaml_depth) + " levels");
      throw Stop{};
    }
    frames_.emplace_back();
    frames_.back().node = node(kind, mark);
  }

  void close() {
    YamlNode done = std::move(frames_.back().node);
    frames_.pop_back();
    add_value(std::move(done));
  }

  bool expects_key() const {
    return !frames_.empty() && frames_.back().node.kind == YamlNode::Kind::map && !frames_.back().has_key;
  }

  [[noreturn]] void refuse_key(const YAML::Mark& mark) {
    if (!add_hint(text_, name_, mark.line + 1, report_))
      report_.add(place(name_, mark), "a key that is not a name; legal: name: value");
    throw Stop{};
  }

  // A scalar, null or alias: a map's next key, or a value.
  void place_node(const YAML::Mark& mark, YamlNode value) {
    if (!expects_key()) return add_value(std::move(value));
    if (value.kind != YamlNode::Kind::scalar || value.text.empty()) refuse_key(mark);
    Frame& frame = frames_.back();
    frame.has_key = true;
    frame.duplicate = !frame.names.insert(value.text).second;
    if (frame.duplicate) report_.add(place(name_, mark), shown(value.text) + ": the key appears a second time");
    frame.entry = {value.text, value.line, value.column, -1, {}};
  }

  void add_value(YamlNode value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == YamlNode::Kind::list) {
      frame.node.items.push_back(std::move(value));
      return;
    }
    frame.entry.value = std::move(value);
    if (!frame.duplicate) frame.node.entries.push_back(std::move(frame.entry));
    frame.has_key = false;
  }

  const std::string& text_;
  Source source_;
  const std::string& name_;
  Report& report_;
  int documents_ = 0;
  std::vector<Frame> frames_;
  YamlNode root_;
};

}  // namespace

bool parse_yaml(const std::string& text, const std::string& name, YamlNode& root, Report& report) {
  if (!is_yaml_text(text, name, report)) return false;
  TreeBuilder builder(text, name, report);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop&) {
    return false;
  } catch (const YAML::Exception& e) {
    if (!add_hint(text, name, e.mark.line + 1, report))
      report.add(place(name, e.mark), "not YAML: " + e.msg + ", " + shown_line(text, e.mark.line + 1));
    return false;
  }
  root = builder.take_root();
  return true;
}

}  // namespace forge
