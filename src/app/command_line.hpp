#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

enum class Verb {
  train,
  gradients,
  evaluate,
  score,
  show,
  plan,
  replay,
  calibrate,
  check,
  generate,
  tokenize,
  report,
  verify,
  verify_checkpoint,
  export_model,
  help,
  version
};

// The command line as values. An option that the verb doesn't take is an error, not ignored.
struct CommandLine {
  Verb verb = Verb::train;
  std::vector<std::string> inputs;  // the deck, or a directory in its place, of score with the lines; texts of
                                    // tokenize; runs of report; problems of verify; topics of help
  std::vector<std::string> set;     // --set key=value
  std::string output;  // gradients, score, generate, tokenize, plan, calibrate, report; the directory of export
  int ranks = 0;       // --ranks: threads to run as, for show, plan and replay the job's ranks; 0 = not given
  std::vector<int> rank_counts;  // plan --search and --grid: all of its --ranks
  std::string restart;           // train: "", "latest" or a directory
  bool fresh = false;            // train: earlier checkpoints are moved aside
  std::string schedule;          // show: "", "text" or "svg:FILE"
  std::string memory;            // show: "" or "svg:FILE"
  std::string gpu;               // show: the GPU to fit on; "": none
  std::string cost;              // show: the machine of the table of floors; "": none
  bool rates = false;            // show: the learning rate and the batch over the run
  std::int64_t samples = 0;      // show: the step whose batch to print; 0: none
  bool all = false;              // show: each part in detail
  bool shows_json = false;       // show: all of it as JSON
  bool resolved = false;         // show: the resolved deck
  int tasks = -1;                // show: the rank whose tasks to print; -1: none
  double slow = 1.2;             // check: how many times the median a rank may take
  // plan
  std::string machine;                  // a name or a file; "": this one, where it was calibrated
  double imbalance = 1;                 // rows of the busiest ranks' experts over the mean
  std::string program;                  // a name or a file; "": forge
  std::string json, trace, candidates;  // files; "": none
  std::vector<std::string> fit;         // run directories
  std::vector<std::string> replayed;    // files of replay
  // replay; machine and json as of plan
  int rank = -1;               // of the job
  std::string wire = "none";   // a word of --wire
  int blocks = 16, steps = 3;  // of the wire's kernel; that are measured
  bool search = false;
  int best = 10;
  double seconds = 0;  // of a search, or of a cell; 0: the default
  bool grid = false;
  std::vector<std::string> models;  // of --grid; none: all
  std::vector<int> nodes;           // of --grid; none: as many as each model needs
  std::string svg;                  // the heat map of --grid; "": none
  std::string write;                // the directory for the decks of the best layouts; "": none
  std::string checkpoint;           // evaluate, score, generate: "", "latest" or a directory
  bool initial = false;             // evaluate, score, generate: the parameters that training starts with
  std::string precision;            // evaluate, score, generate: instead of train.precision; "": the deck's
  // generate
  std::string prompt;
  std::vector<std::int64_t> prompt_tokens;
  std::int64_t length = 200;
  double temperature = 0.7, top_p = 1;
  std::int64_t top_k = 0;
  std::uint64_t sampling_seed = 0;
  std::vector<std::string> stop;  // texts before which a generation ends
  bool ignore_end = false;        // go on behind the model's end tokens
  std::string prompts;            // the file of lines to continue, "-" standard input; "": none
  std::int64_t piece = 8;         // of --prompts: tokens of a text in a pass at most
  // score
  bool per_token = false;  // rows have each label's log-likelihood, too
  // export
  std::string type = "fp32";          // a word of --type
  std::int64_t most_file_mib = 4096;  // of a safetensors file
  bool optimizer = false;             // and its optimizer's states
  bool merge = false;                 // the model with its adapters in it
  // evaluate
  std::int64_t text_bytes = 0;  // of the text that the tokens stand for; 0: one a token (byte vocabulary)
  // tokenize
  bool document_begin = false, document_end = false;
  std::string document_begin_token, document_end_token;  // their texts or ids; "": the tokenizer's own
  std::string tokenizer;       // a file or a directory, also of evaluate, score and generate; "": bytes, or the model's
  std::string pattern;         // of a tiktoken file: a name or a file
  std::string files_from;      // a file with the paths of more texts; "": none
  std::string endings;         // of files in folders, "txt,md"; "": the usual ones
  std::string field = "text";  // of lines of JSON
  std::string format;          // "", uint16, uint32 or npy
  int threads = 0;             // 0: all cores
  std::int64_t train_bpe = 0;  // ids of a tokenizer to train; 0: none
  bool markdown = false;       // help
};

// Throws BadInput naming the option and its legal values.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace forge
