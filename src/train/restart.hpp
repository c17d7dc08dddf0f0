#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint_files.hpp"
#include "data/token_set.hpp"
#include "train/checkpoints.hpp"

namespace forge {

// What a command line says of earlier checkpoints.
struct RestartRequest {
  std::string from;    // "latest", a step's directory, a directory of steps; "" = not given
  bool fresh = false;  // begin anew: what stands in checkpoint.directory is moved aside by the caller
};

// A checkpoint itself, or those of a directory, the newest first. `asked`: who names it, for the BadCheckpoint where
// there is none. Of one rank; looks at names only.
std::vector<std::string> checkpoints_at(const std::string& path, const std::string& asked);

// The directories that a start may continue from, the best first; none: it begins with step 1. Of one rank; looks at
// names only, and tidies checkpoint.directory. Throws BadInput where checkpoints stand and the command line doesn't say
// what shall become of them, BadCheckpoint where it asks for one and there is none.
std::vector<std::string> restart_candidates(const RestartRequest& request, const CheckpointDeck& deck);

// What the training files hold, in short: two sets of files with the same samples have the same.
std::string data_fingerprint(const TokenSet& set);

// How a run's deck differs from its checkpoint's. Layout, paths, length and rates may change, the model's function,
// the samples' order and the types of the state may not.
struct DeckChanges {
  std::vector<std::string> legal, illegal;  // "train.steps = 20, the checkpoint has 10"
};
// `section`: of its keys only; "" of all.
DeckChanges deck_changes(const Deck& now, const std::string& checkpoint_deck, const std::string& where,
                         const std::string& section = "");

// Loads the first candidate that is whole into the session, on every rank what it holds. All ranks; `candidates` and
// `data` are the first rank's. Damaged ones are left out and noted. Throws BadInput where the deck changed what may not
// change, BadCheckpoint where no candidate is usable.
template <class T>
RunProgress restart(Session<T>& session, const Deck& deck, const std::vector<std::string>& candidates,
                    const std::string& data, std::vector<std::string>& notes);

// checkpoint.model_from: fills the parameters and the routers' biases, converted to the run's type, from a checkpoint
// or the newest whole one of a directory. All ranks; `notes`: for the log. Throws as restart() does, and BadInput
// where the model is another one.
template <class T>
void load_model(Session<T>& session, const Deck& deck, std::vector<std::string>& notes);
// The same into `state`, what this rank holds of parameters and biases; whoever calls it updates their copies.
void load_model(Communicator& ranks, Stream& stream, const std::vector<StateTensor>& state, const Deck& deck,
                std::vector<std::string>& notes, Heartbeat* heartbeat = nullptr);

}  // namespace forge
