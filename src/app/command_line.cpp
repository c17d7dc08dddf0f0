#include "app/command_line.hpp"

#include <algorithm>
#include <typeinfo>
#include <variant>

#include "app/command_words.hpp"
#include "app/outputs.hpp"
#include "app/plan_limits.hpp"
#include "app/verb_help.hpp"
#include "app/verb_options.hpp"
#include "checkpoint/export_hf.hpp"
#include "config/keys.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "text/tokenize_text.hpp"

namespace forge {

namespace po = boost::program_options;

namespace {

constexpr std::size_t most_reported = 32;
constexpr int most_blocks = 1024, most_steps = 1000;
constexpr std::int64_t most_length = 1 << 24, most_piece = 1 << 16;

void read_schedule(CommandLine& c) {
  if (c.schedule.empty() || c.schedule == "text" || (c.schedule.rfind("svg:", 0) == 0 && c.schedule.size() > 4)) return;
  throw BadInput("--schedule " + c.schedule + ": legal are text and svg:FILE");
}

void check_precision(const CommandLine& c) {
  const Key& key = *find_key("train", "precision");
  const auto& words = std::get<ChoiceKey>(key.kind).words;
  if (std::find(words.begin(), words.end(), c.precision) == words.end())
    throw BadInput("--precision " + c.precision + ": legal: " + legal_values(key));
  if (std::any_of(c.set.begin(), c.set.end(), [](const auto& set) { return set.starts_with("train.precision="); }))
    throw BadInput("--precision and --set train.precision exclude each other");
}

// Options whose values mean something only where they are given, and pairs of them.
void check_given(const po::variables_map& values, const CommandLine& c) {
  const auto empty = [&](const char* option, const std::string& value) {
    return values.count(option) && value.empty();
  };
  if (values.count("precision")) check_precision(c);
  if (empty("restart", c.restart)) throw BadInput("--restart: legal are latest and a directory");
  if (empty("checkpoint", c.checkpoint)) throw BadInput("--checkpoint: legal are latest and a directory");
  if (!c.restart.empty() && c.fresh) throw BadInput("--restart and --fresh exclude each other");
  if (!c.checkpoint.empty() && c.initial) throw BadInput("--checkpoint and --initial exclude each other");
  if (values.count("bytes") && c.text_bytes < 1) throw BadInput("--bytes must be at least 1");
  if (values.count("seconds")) check_seconds(c.seconds);
  if (values.count("samples") && c.samples < 1) throw BadInput("--samples must be a step, from 1");
  if (values.count("tasks") && c.tasks < 0) throw BadInput("--tasks must be a rank, from 0");
}

void check_count(const CommandLine& c, const std::string& verb) {
  const std::size_t n = c.inputs.size();
  const bool one = c.verb == Verb::train || c.verb == Verb::gradients || c.verb == Verb::evaluate ||
                   c.verb == Verb::show || c.verb == Verb::plan || c.verb == Verb::replay || c.verb == Verb::generate;
  const std::string more = "; `forge " + verb + " --help` has an example";
  if (c.grid && n > 0)
    throw BadInput("--grid takes its decks behind --models, as in --models " + joined(c.inputs, ","));
  if (one && n != 1 && !c.grid)
    throw BadInput("forge " + verb + " takes one input deck, not " + std::to_string(n) +
                   (n > 1 ? ": " + joined(c.inputs) : "") + word_hint(verb, c.inputs, c.set) + more);
  if (c.verb == Verb::score && n != 2)
    throw BadInput("forge score takes a deck and the file of lines to score, not " + std::to_string(n) +
                   (n == 1 ? " name" : " names") + more);
  if (c.verb == Verb::tokenize && n == 0 && c.files_from.empty())
    throw BadInput("forge tokenize takes the text files to read" + more);
  if (c.verb == Verb::report && (n == 0 || n > most_reported))
    throw BadInput("forge report takes 1 to " + std::to_string(most_reported) + " runs, not " + std::to_string(n) +
                   more);
  if (c.verb == Verb::verify_checkpoint && n != 1)
    throw BadInput(
        "forge verify-checkpoint takes one directory: a checkpoint, or checkpoint.directory with all of them");
  if (c.verb == Verb::export_model && n != 1)
    throw BadInput("forge export takes one checkpoint, or checkpoint.directory for the newest one");
  if (c.verb == Verb::help && n > 1) throw BadInput("forge help takes at most one name, of a verb, a section or a key");
  if (c.verb == Verb::calibrate && ((n > 0) != !c.machine.empty() || (n == 0 && !c.set.empty())))
    throw BadInput("forge calibrate takes decks, whose collectives it measures, and --machine together, or neither" +
                   more);
  if (c.verb == Verb::check && (n > 1 || (n == 0 && !c.set.empty())))
    throw BadInput("forge check takes one deck, whose layout and directories it checks, or none" + more);
  if (c.verb == Verb::check && !(c.slow > 1 && c.slow <= 1000))
    throw BadInput("--slow must be more than 1 (the median itself) and at most 1000");
  if (c.verb == Verb::version && n > 0) throw BadInput("forge version takes no arguments");
}

void check_show(const CommandLine& c) {
  if (!c.memory.empty() && !(c.memory.starts_with("svg:") && c.memory.size() > 4))
    throw BadInput("--memory " + c.memory + ": legal is svg:FILE");
  if (!c.shows_json) return;
  if (c.all || c.resolved) throw BadInput("--json includes --all and --deck; legal: --json without them");
  if (!c.schedule.empty()) throw BadInput("--json and --schedule, which draws, exclude each other; legal: one of them");
  if (!c.memory.empty()) throw BadInput("--json and --memory, which draws, exclude each other; legal: one of them");
}

void check_plan(const CommandLine& c) {
  check_grid(c);
  if (!c.candidates.empty() && !c.fit.empty()) throw BadInput("--candidates and --fit exclude each other");
  if (!c.candidates.empty() && c.output.empty()) throw BadInput("--candidates and --output go together");
  if (!c.output.empty() && c.candidates.empty() && c.fit.empty() && !c.grid)
    throw BadInput(
        "--output is where the predictions of --candidates go, the table of --grid, or the machine of --fit");
  if (c.search && !c.candidates.empty()) throw BadInput("--search and --candidates exclude each other");
  check_best(c.best);
  if (c.seconds != 0 && !c.search && !c.grid) throw BadInput("--seconds is of --search and --grid");
  check_imbalance(c.imbalance);
  if (!c.write.empty() && !c.search && !c.grid) throw BadInput("--write is where the decks of --search and --grid go");
  if (!c.replayed.empty() && (c.search || !c.candidates.empty() || !c.fit.empty() || !c.program.empty()))
    throw BadInput("--replayed is of the deck itself, without --search, --candidates, --fit and --as");
  if (!c.trace.empty() && (c.search || !c.candidates.empty()))
    throw BadInput("--trace is of the deck itself, without --search and --candidates");
  if (!c.json.empty() && !c.candidates.empty())
    throw BadInput("--json is of the deck itself or of --search; --candidates has --output");
}

void check_replay(const CommandLine& c) {
  if (c.rank < 0) throw BadInput("--rank must be a rank of the job, from 0");
  if (c.wire != "none" && c.wire != "copy" && c.wire != "time")
    throw BadInput("--wire " + c.wire + ": legal are none, copy and time");
  if (!c.machine.empty() != (c.wire == "time"))
    throw BadInput(
        "--machine has the seconds of --wire time: they go together; legal: --wire time --machine NAME, of "
        "inputs/machines, or a file");
  if (c.blocks != CommandLine().blocks && c.wire != "time")
    throw BadInput("--blocks is of the kernel of --wire time; legal: without it");
  if (c.blocks < 1 || c.blocks > most_blocks)
    throw BadInput("--blocks must be from 1 to " + std::to_string(most_blocks));
  if (c.steps < 1 || c.steps > most_steps) throw BadInput("--steps must be from 1 to " + std::to_string(most_steps));
}

void check_tokenize(const CommandLine& c) {
  if (c.threads < 0 || c.threads > 4096) throw BadInput("--threads must be from 0 to 4096");
  const bool trains = c.train_bpe != 0;
  if (trains && (c.train_bpe < 257 || c.train_bpe > 1 << 20))
    throw BadInput("--train-bpe must be from 257 (the bytes and the end of documents) to 1048576");
  if (trains && !c.tokenizer.empty()) throw BadInput("--train-bpe and --tokenizer exclude each other");
  if (!c.pattern.empty() && c.tokenizer.empty() && !trains) throw BadInput("--pattern needs --tokenizer");
  const bool begins = c.document_begin || !c.document_begin_token.empty();
  const bool given = begins || !c.document_end_token.empty() || !c.format.empty() || c.field != "text";
  if (c.tokenizer.empty() && !trains && given)
    throw BadInput(
        "--document-begin, --document-begin-token, --document-end-token, --format and --field need --tokenizer");
  if (std::find(output_format_words.begin(), output_format_words.end(), c.format) == output_format_words.end())
    throw BadInput("--format " + c.format + ": legal are uint16, uint32, npy, megatron, llm.c and ds");
  if (trains && (begins || c.document_end || !c.document_end_token.empty() || !c.format.empty()))
    throw BadInput(
        "--train-bpe writes a tokenizer: --document-begin, --document-end, their tokens and --format belong to token "
        "files");
}

void check_values(const CommandLine& c) {
  check_outputs(c);  // before anything is computed for them
  if (c.verb == Verb::show) check_show(c);
  if (c.verb == Verb::plan) check_plan(c);
  if (c.verb == Verb::replay) check_replay(c);
  if (c.verb == Verb::tokenize) check_tokenize(c);
  if (c.verb == Verb::export_model) static_cast<void>(export_type(c.type));
  if (c.verb == Verb::export_model && c.most_file_mib < 1) throw BadInput("--file-mib must be at least 1");
  if (c.verb != Verb::generate) return;
  const bool has_prompt = !c.prompt.empty() || !c.prompt_tokens.empty();
  if (!c.prompt.empty() && !c.prompt_tokens.empty()) throw BadInput("--prompt and --tokens exclude each other");
  if (has_prompt && !c.prompts.empty()) throw BadInput("--prompts excludes --prompt and --tokens");
  if (c.prompts.empty() && (!c.output.empty() || c.ranks > 0))
    throw BadInput(
        "--output and --ranks belong to --prompts FILE; one prompt is continued by one rank, on standard output");
  if (!c.prompts.empty() && c.output.empty())
    throw BadInput("--prompts needs --output FILE, or --output - for standard output");
  if (c.piece < 1 || c.piece > most_piece) throw BadInput("--piece must be from 1 to " + std::to_string(most_piece));
  if (c.length < 1 || c.length > most_length)
    throw BadInput("--length must be from 1 to " + std::to_string(most_length));
  if (std::any_of(c.stop.begin(), c.stop.end(), [](const auto& text) { return text.empty(); }))
    throw BadInput("--stop: legal is a text that isn't empty");
  if (!(c.temperature >= 0)) throw BadInput("--temperature must not be negative");
  if (c.top_k < 0) throw BadInput("--top-k must not be negative");
  if (!(c.top_p > 0 && c.top_p <= 1)) throw BadInput("--top-p must be above 0 and at most 1");
}

}  // namespace

namespace {

// Of the option that an error is about.
std::string legal_value(const po::options_description& options, const po::error_with_option_name& error) {
  std::string name = error.get_option_name();
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  const po::option_description* option = options.find_nothrow(name, false);
  if (!option) return "";
  std::string kind;
  if (dynamic_cast<const po::invalid_option_value*>(&error)) {
    const auto* typed = dynamic_cast<const po::typed_value_base*>(option->semantic().get());
    kind = typed && typed->value_type() == typeid(double) ? ", a number" : ", a whole number";
  }
  const std::string value = option->format_parameter();
  return "; legal: --" + name + (value.empty() ? "" : " " + value) + kind + ": " + option->description();
}

void parse_options(const std::string& verb, const std::vector<std::string>& words, CommandLine& c) {
  po::options_description options = options_of(c.verb, c), all;
  all.add(options).add_options()("input", po::value(&c.inputs));
  po::positional_options_description positional;
  positional.add("input", -1);
  try {
    po::variables_map values;
    po::store(po::command_line_parser(words)
                  .options(all)
                  .positional(positional)
                  .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
                  .run(),
              values);
    po::notify(values);
    if (values.count("ranks")) read_ranks(values["ranks"].as<std::string>(), c);
    if (values.count("models")) read_models(values["models"].as<std::string>(), c);
    if (values.count("nodes")) read_nodes(values["nodes"].as<std::string>(), c);
    if (values.count("replayed")) read_replayed(values["replayed"].as<std::string>(), c);
    read_schedule(c);
    if (values.count("tokens")) read_tokens(values["tokens"].as<std::string>(), c);
    check_given(values, c);
    for (const auto& [option, value] : values)
      if (const auto* text = boost::any_cast<std::string>(&value.value()); text && text->empty() && !value.defaulted())
        throw BadInput("--" + option + ": is empty; legal: a value, or leave the option out");
  } catch (const po::unknown_option& error) {
    const std::string hint = option_hint(verb, error.get_option_name());
    throw BadInput("forge " + verb + ": " + error.what() + (hint.empty() ? option_list(verb) : hint));
  } catch (const po::error_with_option_name& error) {
    throw BadInput("forge " + verb + ": " + error.what() + legal_value(options, error));
  } catch (const po::error& error) {
    throw BadInput("forge " + verb + ": " + error.what() + "; `forge " + verb + " --help` has the options");
  }
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine c;
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty()) throw BadInput("no input deck\n" + usage());
  if (asks_for_help(words, c)) return c;
  const std::string verb = take_verb(words);
  c.verb = verbs().at(verb).verb;
  if (c.verb == Verb::train) complete_restart(words);
  parse_options(verb, words, c);
  check_count(c, verb);
  check_values(c);
  return c;
}

std::vector<OptionText> option_texts(Verb verb) {
  CommandLine ignored;
  std::vector<OptionText> texts;
  const po::options_description options = options_of(verb, ignored);
  for (const auto& option : options.options()) {
    const std::string value = option->format_parameter();
    texts.push_back({"--" + option->long_name() + (value.empty() ? "" : " " + value), option->description()});
  }
  return texts;
}

}  // namespace forge
