#include "app/command_line.hpp"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <typeinfo>

#include "app/command_words.hpp"
#include "app/outputs.hpp"
#include "app/verb_help.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "text/tokenize_text.hpp"

namespace forge {

namespace po = boost::program_options;

namespace {

constexpr int most_best = 1000;
constexpr std::size_t most_reported = 32;
constexpr int most_imbalance = 1000, most_blocks = 1024, most_steps = 1000;
constexpr std::int64_t most_length = 1 << 24;

// Verbs that may run several ranks in one process.
bool takes_thread_ranks(Verb verb) {
  return verb == Verb::train || verb == Verb::gradients || verb == Verb::evaluate || verb == Verb::score ||
         verb == Verb::verify || verb == Verb::calibrate;
}

// Verbs that look at what was trained.
bool takes_trained_model(Verb verb) {
  return verb == Verb::evaluate || verb == Verb::score || verb == Verb::generate;
}

void add_trained_model_options(po::options_description& o, CommandLine& c) {
  o.add_options()(
      "checkpoint", po::value(&c.checkpoint)->value_name("latest|DIR"),
      "the parameters of the newest checkpoint of checkpoint.directory that is whole (the default where there "
      "is one), or of this one")("initial", po::bool_switch(&c.initial), "the parameters that training starts with")(
      "precision", po::value(&c.precision)->value_name("fp64|fp32|bf16|fp8"),
      "of the arithmetic, instead of the deck's train.precision");
}

void add_export_options(po::options_description& o, CommandLine& c) {
  o.add_options()("output", po::value(&c.output)->required()->value_name("HF_DIR"), "the directory to write")(
      "type", po::value(&c.type)->value_name("fp32|bf16|fp8"),
      "of the tensors (default fp32); fp8: of blocks' matrices, with block scales")(
      "file-mib", po::value(&c.most_file_mib)->value_name("N"), "largest safetensors file (default 4096)")(
      "optimizer", po::bool_switch(&c.optimizer),
      "write what the optimizer keeps, too, under PyTorch's names: optimizer.safetensors");
}

void add_show_options(po::options_description& o, CommandLine& c) {
  o.add_options()("ranks", po::value<std::string>()->value_name("N"),
                  "show what so many ranks would do (default: as many as the deck's mesh asks for)")(
      "all", po::bool_switch(&c.all), "layout, parameters, FLOP, what is saved, memory and bytes sent, each in detail")(
      "deck", po::bool_switch(&c.resolved), "the resolved deck: every key with its value")(
      "json", po::bool_switch(&c.shows_json), "all that --all and --deck say, as one object of JSON")(
      "schedule", po::value(&c.schedule)->value_name("text|svg:FILE"), "draw the schedule, with its bubble")(
      "memory", po::value(&c.memory)->value_name("svg:FILE"),
      "draw the arena over the tasks of a step, by category, of the rank that needs most, with the task of its peak")(
      "gpu", po::value(&c.gpu)->value_name("NAME|SIZE"),
      "say whether it fits on such GPUs (h100-80, h200-141, a100-80, b200-180, 40GiB, or a machine of "
      "inputs/machines), and else the nearest change that does")("tasks", po::value(&c.tasks)->value_name("RANK"),
                                                                 "print what the rank does in a step, one by one")(
      "rates", po::bool_switch(&c.rates), "draw the learning rate over the run")(
      "samples", po::value(&c.samples)->value_name("STEP"),
      "print what training reads in that step: file, document, tokens and text of each sequence of the batch")(
      "cost", po::value(&c.cost)->value_name("NAME|FILE"),
      "FLOP, bytes and launches of each phase, with their floor on a machine (a file of inputs/machines or any other)");
}

void add_plan_options(po::options_description& o, CommandLine& c) {
  o.add_options()("machine", po::value(&c.machine)->value_name("NAME|FILE"),
                  "a file of inputs/machines or any other, or a GPU of --gpu; default: this one, where forge calibrate "
                  "has measured it")(
      "ranks", po::value<std::string>()->value_name("N"),
      "of the job (default: as many as the deck's mesh asks for); with --search and --grid one "
      "or several, as in 8,16,32")("search", po::bool_switch(&c.search),
                                   "find the fastest layouts of the deck's model and batch that fit")(
      "best", po::value(&c.best)->value_name("K"), "how many of them (default 10)")(
      "write", po::value(&c.write)->value_name("DIR"), "write them as decks, those of --grid too")(
      "grid", po::bool_switch(&c.grid),
      "the fastest layout of each of several models on each of several numbers of nodes; a start with the same "
      "--output goes on where an earlier one ended")(
      "models", po::value<std::string>()->value_name("MODEL,…"),
      "of --grid: decks, sizes from 1B to 1T, or shipped mixtures (mixtral_8x7b, …); default: all sizes and mixtures")(
      "nodes", po::value<std::string>()->value_name("N,…"),
      "of --grid: numbers of the machine's nodes, or with --ranks of ranks; default: as many as each model needs")(
      "svg", po::value(&c.svg)->value_name("FILE"), "draw the grid as a heat map")(
      "candidates", po::value(&c.candidates)->value_name("FILE"),
      "predict each row of a CSV file, whose columns are keys of the deck")(
      "fit", po::value(&c.fit)->composing()->value_name("RUN"),
      "fit the machine to the steps of a run, its directory; repeatable")(
      "output", po::value(&c.output)->value_name("FILE"),
      "where the predictions of --candidates go, the table of --grid, or the machine of --fit")(
      "as", po::value(&c.program)->value_name("NAME|FILE"),
      "as another program behaves: a file of inputs/programs or any other")(
      "imbalance", po::value(&c.imbalance)->value_name("X"),
      "rows of the busiest ranks' experts, as a multiple of the mean (default 1: all alike)")(
      "replayed", po::value<std::string>()->value_name("FILE,…"),
      "computation as forge replay has measured it: the files of a rank of the first stage, of one between, and of the "
      "last")("json", po::value(&c.json)->value_name("FILE"), "write everything as JSON, of a search or a grid, too")(
      "trace", po::value(&c.trace)->value_name("FILE"), "write the simulated step for Perfetto or Chrome");
}

void add_replay_options(po::options_description& o, CommandLine& c) {
  o.add_options()("rank", po::value(&c.rank)->value_name("R")->required(), "the rank, from 0")(
      "ranks", po::value<std::string>()->value_name("N"), "of the job (default: as many as the deck's mesh asks for)")(
      "wire", po::value(&c.wire)->value_name("none|copy|time"),
      "in the place of other ranks: nothing (the default), copies of what the rank would send, or the same in the "
      "seconds that the collective takes on --machine")("machine", po::value(&c.machine)->value_name("NAME|FILE"),
                                                        "of --wire time: as of forge plan")(
      "blocks", po::value(&c.blocks)->value_name("N"),
      "of --wire time on a GPU: blocks of a collective's kernel (default 16)")(
      "steps", po::value(&c.steps)->value_name("N"), "that are measured, behind a first one (default 3)")(
      "json", po::value(&c.json)->value_name("FILE"), "write the times as JSON, for forge plan --replayed");
}

void add_tokenize_options(po::options_description& o, CommandLine& c) {
  o.add_options()("tokenizer", po::value(&c.tokenizer)->value_name("DIR|FILE"),
                  "tokenizer.json, a SentencePiece model or a tiktoken file, or a directory with one; default: bytes")(
      "pattern", po::value(&c.pattern)->value_name("NAME|FILE"), "how a tiktoken file's vocabulary cuts text")(
      "files-from", po::value(&c.files_from)->value_name("FILE"),
      "paths of more texts, each on a line, or behind each a zero byte (find -print0)")(
      "ext", po::value(&c.endings)->value_name("EXT,…|all"),
      "endings of the files that are taken of a folder (default txt,text,md,rst,jsonl,ndjson,jl)")(
      "field", po::value(&c.field)->value_name("NAME"), "whose text is a document, of lines of JSON (default text)")(
      "document-end", po::bool_switch(&c.document_end),
      "write the id that ends a document after each (of bytes: 256 after each file)")(
      "document-end-token", po::value(&c.document_end_token)->value_name("TEXT|ID"),
      "that id, where it isn't the tokenizer's own; implies --document-end")(
      "format", po::value(&c.format)->value_name("FORMAT"), "default: uint16 where all ids fit, else uint32")(
      "threads", po::value(&c.threads)->value_name("N"), "default: all cores")(
      "train-bpe", po::value(&c.train_bpe)->value_name("IDS"),
      "train a byte-level BPE of so many ids on the texts, and write its tokenizer.json to --output");
}

// The options of a verb, bound to the fields they fill.
po::options_description options_of(Verb verb, CommandLine& c) {
  po::options_description o("options");
  const bool deck = takes_trained_model(verb) || verb == Verb::train || verb == Verb::gradients || verb == Verb::show ||
                    verb == Verb::plan || verb == Verb::replay || verb == Verb::verify || verb == Verb::calibrate;
  if (deck)
    o.add_options()(
        "set", po::value(&c.set)->composing()->value_name("KEY=VALUE"),
        "set a key of the deck, as in --set train.steps=20 or --set 'data.files=[a.bin, b.bin]'; repeatable");
  if (verb == Verb::train)
    o.add_options()("restart", po::value(&c.restart)->value_name("latest|DIR"),
                    "go on from the newest checkpoint of checkpoint.directory that is whole, or from this one")(
        "fresh", po::bool_switch(&c.fresh), "start anew; earlier checkpoints are moved aside");
  if (takes_trained_model(verb)) add_trained_model_options(o, c);
  if (verb == Verb::gradients || verb == Verb::tokenize || verb == Verb::report)
    o.add_options()("output", po::value(&c.output)->required()->value_name("FILE"), "the file to write");
  if (verb == Verb::score)
    o.add_options()("output", po::value(&c.output)->required()->value_name("FILE"),
                    "the rows, one for each line; -: standard output")(
        "per-token", po::bool_switch(&c.per_token), "rows have the log-likelihood of each token, too");
  if (verb == Verb::export_model) add_export_options(o, c);
  if (verb == Verb::show) add_show_options(o, c);
  if (verb == Verb::plan) add_plan_options(o, c);
  if (verb == Verb::replay) add_replay_options(o, c);
  if (verb == Verb::calibrate)
    o.add_options()("output", po::value(&c.output)->value_name("FILE"), "default: inputs/machines/this.yaml")(
        "machine", po::value(&c.machine)->value_name("NAME|FILE"),
        "with decks: what the measured one is like in all but collectives, as of forge plan");
  if (takes_thread_ranks(verb))
    o.add_options()("ranks", po::value<std::string>()->value_name("N"),
                    "run N ranks as threads of one process, without a launcher");
  if (verb == Verb::evaluate)
    o.add_options()("bytes", po::value(&c.text_bytes)->value_name("N"),
                    "bytes of the text behind the tokens, for bits per byte; default: one a token");
  if (takes_trained_model(verb))
    o.add_options()("tokenizer", po::value(&c.tokenizer)->value_name("DIR|FILE"),
                    "default: model.tokenizer of the deck, else that of model.hf; bytes need none")(
        "pattern", po::value(&c.pattern)->value_name("NAME|FILE"), "how a tiktoken file's vocabulary cuts text");
  if (verb == Verb::tokenize) add_tokenize_options(o, c);
  if (verb == Verb::help) o.add_options()("markdown", po::bool_switch(&c.markdown), "as in docs/inputs.md");
  if (verb == Verb::generate)
    o.add_options()("prompt", po::value(&c.prompt)->value_name("TEXT"), "text to continue")(
        "tokens", po::value<std::string>()->value_name("1,2,3"), "the prompt as token ids")(
        "length", po::value(&c.length)->value_name("N"), "tokens to add (default 200)")(
        "temperature", po::value(&c.temperature)->value_name("X"), "0: always the most likely (default 0.7)")(
        "top-k", po::value(&c.top_k)->value_name("N"), "draw among the N most likely (default 0: all)")(
        "top-p", po::value(&c.top_p)->value_name("X"), "draw among the likeliest of this mass (default 1: all)")(
        "seed", po::value(&c.sampling_seed)->value_name("N"), "of the draws (default 0)")(
        "stop", po::value(&c.stop)->composing()->value_name("TEXT"), "end before this text; repeatable")(
        "ignore-end", po::bool_switch(&c.ignore_end), "go on behind the tokens that end a text");
  return o;
}

void read_schedule(CommandLine& c) {
  if (c.schedule.empty() || c.schedule == "text" || (c.schedule.rfind("svg:", 0) == 0 && c.schedule.size() > 4)) return;
  throw BadInput("--schedule " + c.schedule + ": legal are text and svg:FILE");
}

void check_precision(const CommandLine& c) {
  constexpr std::array names{"fp64", "fp32", "bf16", "fp8"};
  if (std::find(names.begin(), names.end(), c.precision) == names.end())
    throw BadInput("--precision " + c.precision + ": legal are fp64, fp32, bf16 and fp8");
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
  if (c.verb == Verb::version && n > 0) throw BadInput("forge version takes no arguments");
}

void check_show(const CommandLine& c) {
  if (!c.memory.empty() && !(c.memory.starts_with("svg:") && c.memory.size() > 4))
    throw BadInput("--memory " + c.memory + ": legal is svg:FILE");
  if (!c.shows_json) return;
  if (c.all || c.resolved) throw BadInput("--json has what --all and --deck say; legal: --json without them");
  if (!c.schedule.empty()) throw BadInput("--json and --schedule, which draws, exclude each other");
  if (!c.memory.empty()) throw BadInput("--json and --memory, which draws, exclude each other");
}

void check_plan(const CommandLine& c) {
  check_grid(c);
  if (!c.candidates.empty() && !c.fit.empty()) throw BadInput("--candidates and --fit exclude each other");
  if (!c.candidates.empty() && c.output.empty()) throw BadInput("--candidates and --output go together");
  if (!c.output.empty() && c.candidates.empty() && c.fit.empty() && !c.grid)
    throw BadInput(
        "--output is where the predictions of --candidates go, the table of --grid, or the machine of --fit");
  if (c.search && !c.candidates.empty()) throw BadInput("--search and --candidates exclude each other");
  if (c.best < 1 || c.best > most_best) throw BadInput("--best must be from 1 to " + std::to_string(most_best));
  if (!(c.imbalance >= 1 && c.imbalance <= most_imbalance))
    throw BadInput("--imbalance must be from 1 (all ranks get as many rows) to " + std::to_string(most_imbalance));
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
    throw BadInput("--machine has the seconds of --wire time: they go together");
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
  const bool given = !c.document_end_token.empty() || !c.format.empty() || c.field != "text";
  if (c.tokenizer.empty() && !trains && given)
    throw BadInput("--document-end-token, --format and --field need --tokenizer");
  if (std::find(output_format_words.begin(), output_format_words.end(), c.format) == output_format_words.end())
    throw BadInput("--format " + c.format + ": legal are uint16, uint32, npy, megatron, llm.c and ds");
  if (trains && (c.document_end || !c.document_end_token.empty() || !c.format.empty()))
    throw BadInput(
        "--train-bpe writes a tokenizer: --document-end, --document-end-token and --format belong to token files");
}

void check_values(const CommandLine& c) {
  check_outputs(c);  // before anything is computed for them
  if (c.verb == Verb::show) check_show(c);
  if (c.verb == Verb::plan) check_plan(c);
  if (c.verb == Verb::replay) check_replay(c);
  if (c.verb == Verb::tokenize) check_tokenize(c);
  if (c.verb == Verb::export_model && c.type != "fp32" && c.type != "bf16" && c.type != "fp8")
    throw BadInput("--type " + c.type + ": legal are fp32, bf16 and fp8");
  if (c.verb == Verb::export_model && c.most_file_mib < 1) throw BadInput("--file-mib must be at least 1");
  if (c.verb != Verb::generate) return;
  if (!c.prompt.empty() && !c.prompt_tokens.empty()) throw BadInput("--prompt and --tokens exclude each other");
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
