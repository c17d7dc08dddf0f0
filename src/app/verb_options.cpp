#include "app/verb_options.hpp"

#include <string>
#include <variant>

#include "config/export_type.hpp"
#include "config/keys.hpp"
#include "config/text.hpp"

namespace forge {

namespace po = boost::program_options;

namespace {

// Verbs that may run several ranks in one process.
bool takes_thread_ranks(Verb verb) {
  return verb == Verb::train || verb == Verb::gradients || verb == Verb::evaluate || verb == Verb::score ||
         verb == Verb::generate || verb == Verb::verify || verb == Verb::calibrate || verb == Verb::check;
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
      "precision",
      po::value(&c.precision)->value_name(joined(std::get<ChoiceKey>(find_key("train", "precision")->kind).words, "|")),
      "of the arithmetic, instead of the deck's train.precision");
}

void add_export_options(po::options_description& o, CommandLine& c) {
  o.add_options()("output", po::value(&c.output)->required()->value_name("HF_DIR"), "the directory to write")(
      "type", po::value(&c.type)->value_name(joined({export_type_words.begin(), export_type_words.end()}, "|")),
      export_type_doc)("file-mib", po::value(&c.most_file_mib)->value_name("N"),
                       "largest safetensors file (default 4096)")(
      "optimizer", po::bool_switch(&c.optimizer),
      "write the optimizer's states, too, under PyTorch's names: optimizer.safetensors")(
      "merge", po::bool_switch(&c.merge), "of a run with adapters: the model with these in it, not the adapters alone");
}

void add_show_options(po::options_description& o, CommandLine& c) {
  o.add_options()("ranks", po::value<std::string>()->value_name("N"),
                  "show a job of so many ranks (default: as many as the deck's mesh asks for)")(
      "all", po::bool_switch(&c.all),
      "layout, parameters, FLOP, saved activations, memory and bytes sent, each in detail")(
      "deck", po::bool_switch(&c.resolved), "the resolved deck: every key with its value")(
      "json", po::bool_switch(&c.shows_json), "all that --all and --deck say, as one object of JSON")(
      "schedule", po::value(&c.schedule)->value_name("text|svg:FILE"), "draw the schedule, with its bubble")(
      "memory", po::value(&c.memory)->value_name("svg:FILE"),
      "draw the arena over the tasks of a step, by category, of the rank that needs most, with the task of its peak")(
      "gpu", po::value(&c.gpu)->value_name("NAME|SIZE"),
      "say whether it fits on such GPUs (h100-80, h200-141, a100-80, b200-180, 40GiB, or a machine of "
      "inputs/machines), and else the nearest change that does")("tasks", po::value(&c.tasks)->value_name("RANK"),
                                                                 "print the rank's tasks in a step")(
      "rates", po::bool_switch(&c.rates), "draw the learning rate over the run")(
      "samples", po::value(&c.samples)->value_name("STEP"),
      "print the sequences of a step: file, document, tokens and text of each")(
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
      "seconds", po::value(&c.seconds)->value_name("S"),
      "processor time of each thread of the search (default 45), or for each cell of --grid (default 20): cells that "
      "had less and left layouts out are searched again")("write", po::value(&c.write)->value_name("DIR"),
                                                          "write them as decks, those of --grid too")(
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
      "in the place of other ranks: nothing (the default), copies of as many bytes as the rank would send, or the same "
      "in the seconds that the collective takes on --machine")(
      "machine", po::value(&c.machine)->value_name("NAME|FILE"), "of --wire time: as of forge plan")(
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
      "document-begin", po::bool_switch(&c.document_begin),
      "write the id that begins a document before each; needs --tokenizer")(
      "document-begin-token", po::value(&c.document_begin_token)->value_name("TEXT|ID"),
      "that id, where it isn't the tokenizer's own; implies --document-begin")(
      "document-end", po::bool_switch(&c.document_end),
      "write the id that ends a document after each (of bytes: 256 after each file)")(
      "document-end-token", po::value(&c.document_end_token)->value_name("TEXT|ID"),
      "that id, where it isn't the tokenizer's own; implies --document-end")(
      "format", po::value(&c.format)->value_name("FORMAT"), "default: uint16 where all ids fit, else uint32")(
      "threads", po::value(&c.threads)->value_name("N"), "default: all cores")(
      "train-bpe", po::value(&c.train_bpe)->value_name("IDS"),
      "train a byte-level BPE of so many ids on the texts, and write its tokenizer.json to --output");
}

}  // namespace

po::options_description options_of(Verb verb, CommandLine& c) {
  po::options_description o("options");
  const bool deck = takes_trained_model(verb) || verb == Verb::train || verb == Verb::gradients || verb == Verb::show ||
                    verb == Verb::plan || verb == Verb::replay || verb == Verb::verify || verb == Verb::calibrate ||
                    verb == Verb::check;
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
        "with decks: the machine that gives all but collectives, as of forge plan");
  if (verb == Verb::check)
    o.add_options()("machine", po::value(&c.machine)->value_name("NAME|FILE"),
                    "whose collectives the measured ones stand beside, as of forge plan")(
        "slow", po::value(&c.slow)->value_name("X"),
        "a rank is slow from so many times the median of all on (default 1.2)")(
        "output", po::value(&c.output)->value_name("FILE"),
        "names of nodes with slow or wrong ranks, one a line, to leave out of jobs");
  if (takes_thread_ranks(verb))
    o.add_options()("ranks", po::value<std::string>()->value_name("N"),
                    "run N ranks as threads of one process, without a launcher");
  if (verb == Verb::evaluate)
    o.add_options()("bytes", po::value(&c.text_bytes)->value_name("N"),
                    "bytes of the text behind the tokens, for bits per byte; default: one a token");
  if (takes_trained_model(verb))
    o.add_options()("tokenizer", po::value(&c.tokenizer)->value_name("DIR|FILE"),
                    "default: model.tokenizer of the deck, else the one of model.hf; bytes need none")(
        "pattern", po::value(&c.pattern)->value_name("NAME|FILE"), "how a tiktoken file's vocabulary cuts text");
  if (verb == Verb::tokenize) add_tokenize_options(o, c);
  if (verb == Verb::help) o.add_options()("markdown", po::bool_switch(&c.markdown), "as in docs/inputs.md");
  if (verb == Verb::generate)
    o.add_options()("prompt", po::value(&c.prompt)->value_name("TEXT"), "text to continue")(
        "prompts", po::value(&c.prompts)->value_name("FILE|-"),
        "lines of JSON to continue, many at a time, on any layout")(
        "output", po::value(&c.output)->value_name("FILE"),
        "of --prompts: the rows, one for each line; -: standard output")(
        "piece", po::value(&c.piece)->value_name("N"),
        "of --prompts: tokens of a prompt that a pass reads (default 8)")(
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

}  // namespace forge
