#include "config/write_deck.hpp"

#include "config/keys.hpp"
#include "config/text.hpp"

namespace forge {

namespace {

const char* requirement_text(const Key& key) {
  switch (key.required) {
    case Required::training:
      return "required";
    case Required::dimension:
      return "required without model.hf";
    case Required::files:
      return "required without data.sources";
    case Required::never:
      break;
  }
  return "";
}

std::string default_or_required(const Key& key) {
  return key.required == Required::never ? "default " + default_text(key) : requirement_text(key);
}

std::string help_of(const Key& key) {
  return "  " + key.qualified() + "   " + legal_values(key) + (key.unit.empty() ? "" : " [" + key.unit + "]") + "; " +
         default_or_required(key) + (key.on_restart == OnRestart::stays ? "; stays at a restart" : "") + "\n" +
         wrapped(key.doc, "      ");
}

std::string help_of(const SectionInfo& section) {
  std::string text = wrapped(section.name + ": " + section.doc, "");
  for (const auto& key : all_keys())
    if (key.section == section.name) text += help_of(key);
  return text;
}

// Pipes separate the columns of a table.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
  return result;
}

}  // namespace

std::string write_deck(const Deck& deck) {
  std::string text;
  for (const auto& section : all_sections()) {
    text += section.name + ":\n";
    for (const auto& key : all_keys())
      if (key.section == section.name) text += "  " + key.name + ": " + value_text(key, deck) + "\n";
  }
  return text;
}

std::string help_text(const std::string& section) {
  std::string text;
  for (const auto& info : all_sections())
    if (section.empty() || section == info.name) text += (text.empty() ? "" : "\n") + help_of(info);
  return text;
}

std::string help_of_keys(const std::string& section, const std::string& name) {
  std::string text;
  for (const auto& key : all_keys())
    if ((section.empty() || key.section == section) && key.name == name) text += help_of(key);
  return name.empty() ? "" : text;
}

std::string inputs_markdown() {
  std::string text =
      "# The input deck\n\n"
      "Written by `forge help --markdown` from the table in src/config/keys_model.cpp, keys_experts.cpp and "
      "keys_run.cpp; a test fails when the two differ.\n\n"
      "A deck is YAML: sections of keys. It is read as untrusted text: at most 1 MiB and 32 levels; no anchors, "
      "aliases, tags, second documents or duplicate keys. A missing, null or empty section or key means defaults. An "
      "unknown key is an error that names the nearest key, also by names of other programs; all errors come in one "
      "report, with file:line:column. `--set section.key=value` changes a key; it may be given several times, the last "
      "one wins. A text or path is taken as typed, other values are YAML (`--set data.files=[a.bin]`). Relative paths "
      "start at the working directory.\n\n"
      "Integers are decimal digits without leading zeros, or a decimal number that is whole (1e6). Numbers are finite. "
      "Truth values are `true` and `false`. Numbers and truth values in quotes are texts, and refused.\n\n"
      "Column restart: whether a run that goes on from a checkpoint may have another value than the checkpoint; one "
      "that stays must be the checkpoint's.\n";
  for (const auto& section : all_sections()) {
    text += "\n## " + section.name + "\n\n" + section.doc + "\n\n";
    text += "| key | legal | unit | default | restart | meaning |\n|---|---|---|---|---|---|\n";
    for (const auto& key : all_keys())
      if (key.section == section.name)
        text += "| `" + key.name + "` | " + cell(legal_values(key)) + " | " + key.unit + " | " +
                (key.required == Required::never ? "`" + cell(default_text(key)) + "`" : requirement_text(key)) +
                " | " + (key.on_restart == OnRestart::may_change ? "may change" : "stays") + " | " + cell(key.doc) +
                " |\n";
  }
  return text;
}

}  // namespace forge
