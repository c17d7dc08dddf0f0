#include "app/verb_help.hpp"

#include <algorithm>

#include "config/keys.hpp"
#include "config/suggest.hpp"
#include "config/text.hpp"
#include "config/write_deck.hpp"
#include "core/error.hpp"
#include "core/parse.hpp"

namespace forge {

namespace {

constexpr std::size_t most_left_columns = 30;

// Rows of two columns, the right one wrapped.
std::string table(const std::vector<OptionText>& rows) {
  std::size_t left = 0;
  for (const OptionText& row : rows) left = std::max(left, std::min(text_columns(row.form), most_left_columns));
  const std::string indent(left + 4, ' ');
  std::string text;
  for (const OptionText& row : rows) {
    const std::size_t columns = text_columns(row.form);
    const std::string right = wrapped(row.meaning, indent);
    text += "  " + row.form;
    text += columns > left ? "\n" + right : std::string(left - columns + 2, ' ') + right.substr(indent.size());
  }
  return text;
}

}  // namespace

const std::map<std::string, VerbEntry>& verbs() {
  static const std::map<std::string, VerbEntry> entries{
      {"train",
       {Verb::train, "DECK", "train (the verb may be left out)",
        "forge inputs/quickstart.yaml --set train.steps=20\nforge inputs/quickstart.yaml --restart"}},
      {"gradients",
       {Verb::gradients, "DECK", "write every gradient of step 1 to --output, a safetensors file",
        "forge gradients verify/llama/input.yaml --output gradients.safetensors"}},
      {"evaluate",
       {Verb::evaluate, "DECK", "loss, perplexity and bits per byte of a trained model on the validation files",
        "forge evaluate inputs/quickstart.yaml --checkpoint latest"}},
      {"score",
       {Verb::score, "DECK FILE", "log-likelihoods of continuations behind contexts, line by line",
        "forge score inputs/quickstart.yaml questions.jsonl --output scores.jsonl"}},
      {"show",
       {Verb::show, "DECK", "parameters, FLOPs, memory and schedule of the resolved deck",
        "forge show inputs/quickstart.yaml\nforge show inputs/7b_4gpu.yaml --gpu h100-80"}},
      {"plan",
       {Verb::plan, "DECK", "time and memory of a step on a machine, and its fastest layouts",
        "forge plan inputs/7b_4gpu.yaml --machine h100_8 --search\n"
        "forge plan --grid --machine h100_8 --models 8B,70B --nodes 1,2,4 --output grid.csv"}},
      {"replay",
       {Verb::replay, "DECK",
        "one rank of any layout alone on this device: its times, launches and memory, without its peers",
        "forge replay inputs/quickstart.yaml --rank 3 --ranks 4 --set mesh.tp=4 --steps 1\n"
        "forge replay inputs/moe_32gpu.yaml --rank 5 --wire time --machine h100_8"}},
      {"calibrate",
       {Verb::calibrate, "[DECK…]",
        "measure this machine for forge plan, with the ranks that are started: processors, or the collectives of decks",
        "mpirun -n 2 forge calibrate\nsrun forge calibrate inputs/7b_16gpu_adamw.yaml --machine h100_8 --output "
        "measured.yaml"}},
      {"check",
       {Verb::check, "[DECK]", "find slow and wrong ranks among those that are started",
        "mpirun -n 2 forge check\nsrun forge check inputs/7b_32gpu_fsdp.yaml --machine h200_4 --output slow_nodes"}},
      {"export",
       {Verb::export_model, "DIR", "write a checkpoint's model to --output, a Hugging Face directory",
        "forge export checkpoints/quickstart --output model"}},
      {"generate",
       {Verb::generate, "DECK", "continue a prompt, or a file of them, with a trained model",
        "forge generate inputs/quickstart.yaml --checkpoint latest --prompt 'It was'\n"
        "forge generate inputs/quickstart.yaml --checkpoint latest --prompts prompts.jsonl --output texts.jsonl "
        "--ranks 2 --set "
        "train.microbatch_sequences=2"}},
      {"tokenize",
       {Verb::tokenize, "TEXT…", "make a token file from text, or train a tokenizer",
        "forge tokenize book.txt --tokenizer tokenizer.json --output tokens.bin\n"
        "forge tokenize book.txt --train-bpe 4096 --output tokenizer.json"}},
      {"report",
       {Verb::report, "RUN…", "draw runs as one page of HTML: curves, times, events, decks, samples",
        "forge report runs/quickstart --output report.html\nforge report runs/a runs/b --output both.html"}},
      {"verify",
       {Verb::verify, "[PROBLEM…]", "run the problems of verify/ and compare with their references",
        "forge verify llama"}},
      {"verify-checkpoint",
       {Verb::verify_checkpoint, "DIR", "read and verify every byte of a checkpoint",
        "forge verify-checkpoint checkpoints/quickstart"}},
      {"help",
       {Verb::help, "[VERB|SECTION|KEY|keys]", "a verb, the deck's keys of a section, one key, or all keys",
        "forge help optimizer\nforge help learning_rate"}},
      {"version", {Verb::version, "", "build, git revision and libraries", "forge version"}}};
  return entries;
}

std::string verb_of(const CommandLine& line) {
  for (const auto& [name, entry] : verbs())
    if (entry.verb == line.verb) return "forge " + name;
  return "forge";
}

std::string usage() {
  std::vector<OptionText> rows;
  for (const auto& [name, entry] : verbs())
    rows.push_back({name + (*entry.arguments ? " " : "") + (entry.verb == Verb::help ? "[NAME]" : entry.arguments),
                    entry.purpose});
  return "usage: forge DECK [--set KEY=VALUE …]\n       forge VERB ARGUMENTS [options]\n\n" + table(rows) +
         "\nA deck is a YAML file. `forge VERB --help` has a verb's options and an example, `forge help SECTION`,\n"
         "`forge help KEY` and `forge help keys` the deck's keys.\n";
}

std::string verb_help(const std::string& verb) {
  const VerbEntry& entry = verbs().at(verb);
  const std::vector<OptionText> options = option_texts(entry.verb);
  std::string text = "usage: forge " + verb + (*entry.arguments ? " " : "") + entry.arguments +
                     (options.empty() ? "" : " [options]") + "\n" + wrapped(entry.purpose, "  ") + "\nfor example:\n";
  for (const std::string_view example : parts_of(entry.examples, '\n')) text += "  " + std::string(example) + "\n";
  return text + (options.empty() ? "" : "\noptions:\n" + table(options));
}

std::string help_of_name(const std::string& name) {
  if (name == "keys") return help_text();
  const bool dot_behind = name.size() > 1 && name.back() == '.';
  const std::string section = dot_behind ? name.substr(0, name.size() - 1) : name;
  if (!dot_behind && verbs().contains(name))
    return verb_help(name) +
           (is_section(name) ? "\n`forge help " + name + ".` has the deck's section of this name.\n" : "");
  if (is_section(section)) return help_text(section);
  const std::size_t dot = name.find('.');
  if (std::string keys = help_of_keys(dot == std::string::npos ? "" : name.substr(0, dot),
                                      dot == std::string::npos ? name : name.substr(dot + 1));
      !keys.empty())
    return keys;
  const std::string option = option_of_verbs(name);
  throw BadInput("help " + shown(name) + ": neither a verb nor a section or key of the deck" +
                 (option.empty() ? help_suggestion(name) : option + "; `forge VERB --help` has it"));
}

}  // namespace forge
