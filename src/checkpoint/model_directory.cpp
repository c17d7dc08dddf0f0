#include "checkpoint/model_directory.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "checkpoint/directory.hpp"
#include "config/output_lock.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "core/file_errors.hpp"
#include "hf/json_input.hpp"
#include "tokenizer/files.hpp"
#include "tokenizer/model_ids.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr const char* mark_name = ".forge_export";
constexpr std::size_t most_mark_bytes = 1 << 20, most_file_bytes = std::size_t{1} << 30;

std::string absolute(const std::string& path) {
  std::error_code ignored;
  fs::path whole = fs::weakly_canonical(path, ignored);
  if (!whole.has_filename()) whole = whole.parent_path();
  return whole.string();
}

// The lines of a directory's mark.
std::set<std::string> mark_of(const fs::path& directory) {
  std::set<std::string> lines;
  if (!is_file(directory / mark_name)) return lines;
  std::istringstream text(read_text_file((directory / mark_name).string(), most_mark_bytes, "the mark of an export"));
  for (std::string line; std::getline(text, line);) lines.insert(line);
  return lines;
}

// A file of a tokenizer that stands alone under any name: the one that programs look for in a directory.
std::string usual_name(const fs::path& file) {
  const std::string name = file.filename();
  if (name.ends_with(".tiktoken") || name.ends_with(".pattern") || is_file(file.string() + ".pattern")) return name;
  return name.ends_with(".model") ? "tokenizer.model" : "tokenizer.json";
}

void copy_over(const fs::path& from, const fs::path& to) {
  if (!is_file(from) || same_place(from, to)) return;
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  write_text_file(to.string(), read_text_file(from.string(), most_file_bytes, "the tokenizer"));
}

// What transformers needs to know of a tokenizer.json that forge has made.
std::string tokenizer_config(const Deck& deck, const Tokenizer& tokenizer) {
  nlohmann::ordered_json config;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (!tokenizer.parts().document_end.empty()) config["eos_token"] = tokenizer.parts().document_end;
  if (deck.train.sequence_tokens > 0) config["model_max_length"] = deck.train.sequence_tokens;
  config["clean_up_tokenization_spaces"] = false;
  return config.dump(2) + "\n";
}

void copy_tokenizer(const Deck& deck, const std::string& source, const std::optional<Tokenizer>& tokenizer,
                    const fs::path& to) {
  std::error_code ignored;
  if (fs::is_directory(source, ignored)) {
    for (const fs::path file : tokenizer_files(source)) copy_over(file, to / file.lexically_relative(source));
  } else {
    for (const fs::path file : tokenizer_files(source))
      copy_over(file, to / (file == fs::path(source) ? usual_name(file) : file.filename().string()));
  }
  if (tokenizer && is_file(to / "tokenizer.json") && !is_file(to / "tokenizer_config.json"))
    write_text_file((to / "tokenizer_config.json").string(), tokenizer_config(deck, *tokenizer));
}

}  // namespace

void check_tokenizer(const ModelDeck& model) {
  std::error_code error;
  if (!model.tokenizer.empty() && !fs::exists(model.tokenizer, error))
    throw BadInput("model.tokenizer = " + model.tokenizer +
                   ": there is no such file or directory; legal: a tokenizer's, or empty: model.hf's");
}

std::vector<std::string> names_of_run(const std::string& checkpoints, const std::string& output) {
  std::vector<std::string> names;
  if (!checkpoints.empty()) names.push_back("checkpoints of " + absolute(checkpoints));
  if (!output.empty()) names.push_back("output of " + absolute(output));
  return names;
}

void check_export_directory(const std::string& directory, const std::vector<std::string>& run, const ModelDeck& model,
                            const std::string& who) {
  std::error_code error;
  for (const auto& [key, path] : {std::pair{"model.hf", model.hf}, {"model.tokenizer", model.tokenizer}})
    if (!path.empty() && same_place(path, directory))
      throw BadInput(who + " " + directory + " is " + key + ", which it would replace; legal: another directory");
  if (!fs::exists(directory, error)) return;
  if (!fs::is_directory(directory, error)) throw BadInput(who + " " + directory + " is a file; legal: a directory");
  const fs::directory_iterator entries(directory, error);
  if (std::all_of(begin(entries), end(entries),
                  [](const fs::directory_entry& entry) { return entry.path().filename() == directory_lock_name; }))
    return;
  const std::set<std::string> mark = mark_of(directory);
  const bool own = std::any_of(run.begin(), run.end(), [&](const std::string& name) { return mark.count(name) > 0; });
  if (own) return;
  throw BadInput(who + " " + directory + " has files already, and they are " +
                 (mark.empty() ? "no export that forge knows" : "the export of another run (" + *mark.begin() + ")") +
                 "; legal: a directory that is new or empty, or one with an earlier export of this run");
}

void begin_export(const std::string& directory, const std::vector<std::string>& run) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw IoFailed(directory + ": " + error.message());
  std::string text;
  for (const std::string& name : run) text += name + "\n";
  write_text_file(directory + "/" + mark_name, text);
}

bool write_model_files(const Deck& deck, const std::string& directory, const std::string& dtype,
                       const CodedWeights* coded) {
  std::error_code ignored;
  const std::string named = deck.model.tokenizer.empty() ? deck.model.hf : deck.model.tokenizer;
  const bool missing = !named.empty() && !fs::exists(named, ignored);
  std::optional<Tokenizer> tokenizer;
  if (!named.empty() && !missing) {
    try {
      if (const std::string path = tokenizer_path(deck.model); !path.empty()) tokenizer.emplace(Tokenizer::open(path));
    } catch (const BadInput&) {  // of a kind that isn't read here: its files go along
    }
    copy_tokenizer(deck, named, tokenizer, directory);
  }
  HfFacts facts{coded, dtype, model_ids(deck, tokenizer ? &*tokenizer : nullptr), deck.train.sequence_tokens};
  const std::string settings = deck.model.hf + "/generation_config.json";
  const bool has_settings = !deck.model.hf.empty() && is_file(settings);
  if (has_settings || !facts.ids.ends.empty())
    write_text_file(directory + "/generation_config.json",
                    generation_config(facts.ids, has_settings ? read_text_file(settings, most_mark_bytes, "") : ""));
  write_text_file(directory + "/config.json", write_hf_config(deck.model, facts));
  return !missing;
}

}  // namespace forge
