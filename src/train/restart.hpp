#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/run_marker.hpp"
#include "data/sample_stream.hpp"
#include "train/batch_job.hpp"
#include "train/checkpoints.hpp"

namespace forge {

// A command line's options of earlier checkpoints.
struct RestartRequest {
  std::string from;    // "latest", a step's directory, a directory of steps; "" = not given
  bool fresh = false;  // begin anew: contents of checkpoint.directory are moved aside
};

// A checkpoint itself, or those of a directory, the newest first; also the one that a file `latest` names. `asked`: who
// names it, for the BadCheckpoint where there is none; `directory`: the deck's, whose checkpoints may be meant. Of one
// rank; looks at names only.
std::vector<std::string> checkpoints_at(const std::string& path, const std::string& asked,
                                        const std::string& directory = "");

// The rest of a message, beginning with "; ", on a path that is no checkpoint: its kind, or which one is meant.
std::string no_checkpoint_hint(const std::string& path, const std::string& directory = "");

// Whether there is such a checkpoint.
bool holds_checkpoints(const std::string& path);

// How a run starts.
struct RunStart {
  std::vector<std::string> candidates;  // it may continue from these, the best first; none: it begins with step 1
  std::string model_from;               // checkpoint.model_from; elsewhere where the job's first start has moved it
  bool goes_on = false;                 // the candidates stand in checkpoint.directory
  RunMarker marker;                     // of checkpoint.directory from now on
  std::vector<std::string> notes;       // for the log
};

// The start of a run, on one rank; looks at names only. A job that its batch system starts again, and whose first start
// took effect, goes on from the contents of checkpoint.directory, which are its own, whatever the command line says.
// Throws BadInput where checkpoints stand and the command line doesn't say whether to use them, BadCheckpoint where it
// asks for one and there is none.
RunStart start_of_run(const RestartRequest& request, const CheckpointDeck& deck, const BatchJob& job);

// When nothing can be wrong with the start any more; of the same rank. `step`: the one that the run goes on behind.
// Moves aside the steps behind it, or all where the run goes on from elsewhere or begins anew, and marks the others as
// this job's. Lines for the log.
std::vector<std::string> take_effect(const RunStart& start, const CheckpointDeck& deck, std::int64_t step);

// A fingerprint of the training files: two sets of files with the same samples have the same. Of a mixture, of each
// source.
std::string data_fingerprint(const SampleStream& data);
std::string data_fingerprint(const TokenSet& set);

// The training files that were written behind `time`: a fingerprint looks at 64 samples of a source, and elsewhere
// these may differ from the files at the checkpoint's time.
std::vector<std::string> younger_files(const DataDeck& data, std::filesystem::file_time_type time);

// How a run's deck differs from its checkpoint's. Layout, paths, length and rates may change, the model's function,
// the samples' order and the types of the state may not.
struct DeckChanges {
  std::vector<std::string> legal, illegal;  // "train.steps = 20, the checkpoint has 10"
};
// `step`: of the checkpoint; phases of the data that begin behind it may change. `section`: of its keys only; "" of
// all.
DeckChanges deck_changes(const Deck& now, const std::string& checkpoint_deck, const std::string& where,
                         std::int64_t step, const std::string& section = "");

// checkpoint.reset_optimizer: whether a run that goes on from a checkpoint takes nothing of its optimizer. From its own
// checkpoints, whose deck has the key, too, a run goes on with the optimizer.
bool resets_optimizer(const Deck& now, const std::string& checkpoint_deck, const std::string& where);

// Loads the first candidate that is whole into the session, on every rank its own part. All ranks; `candidates` and
// `data` are the first rank's. Damaged ones are left out and noted. Throws BadInput where a fixed part of the deck
// changed, BadCheckpoint where no candidate is usable.
template <class T>
RunProgress restart(Session<T>& session, const Deck& deck, const std::vector<std::string>& candidates,
                    const std::string& data, std::vector<std::string>& notes);

// checkpoint.model_from: fills the parameters and the routers' biases, converted to the run's type, from a checkpoint
// or the newest whole one of a directory. All ranks; `notes`: for the log. Returns where they come from:
// "DIR/step_00000008, step 8, written by 4 ranks". Throws as restart() does, and BadInput where the model is another
// one.
template <class T>
std::string load_model(Session<T>& session, const Deck& deck, std::vector<std::string>& notes);
// Reads a model into `state`, this rank's parameters and biases; whoever calls it updates their copies.
std::string load_model(Communicator& ranks, Stream& stream, const std::vector<StateTensor>& state, const Deck& deck,
                       std::vector<std::string>& notes, Heartbeat* heartbeat = nullptr);

}  // namespace forge
