#pragma once

#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"
#include "parallel/storage.hpp"

namespace forge {

// The settings of the deck that a command line stands for: --precision, then --set. A precision without
// rounding takes the deck's keys of it back to their defaults, which alone are legal there.
std::vector<std::string> settings_of(const CommandLine& line);

// The source of the parameters for evaluate, score and generate, entered in the deck as Job and load_model read it:
// --checkpoint, or the checkpoint directory that the command line has in place of a deck, becomes
// checkpoint.model_from; without an option the newest checkpoint of checkpoint.directory does, else model.hf implies
// model.load_weights; --initial leaves the deck as it is: training's initial values. All ranks of `ranks` call it, of
// which the first one looks at directories and throws: BadInput where the deck names no trained parameters,
// BadCheckpoint where the checkpoint of the command line isn't there. Returns a text to follow the parameters' source:
// "" or which one was chosen.
std::string choose_parameters(const CommandLine& line, Deck& deck, Communicator& ranks);

// BadInput: a rounded number's scale would depend on other tokens than those before it, or on a history, which isn't
// read.
void refuse_scales_of_sequences(const CommandLine& line, const Deck& deck);
// BadInput where scales are of a training's steps, and the parameters come from no checkpoint.
void refuse_missing_history(const Deck& deck);

// "initial values, seed 5".
std::string initial_values_text(const Deck& deck);
// Starts the adapters beside a model that was read: from adapter.load, or drawn; and a text on their source, behind a
// comma, "" without adapters.
template <class T>
void start_adapters(const Deck& deck, const ModelSpec& spec, ParameterStorage<T>& storage, Stream& stream,
                    const Replicas& replicas, Heartbeat* heartbeat);
std::string adapter_text(const Deck& deck);
// "model.hf DIR, 290 tensors"; a note of tensors that the model doesn't read. Of one rank.
std::string model_hf_text(const Deck& deck, const ModelSpec& spec, std::vector<std::string>& notes);
// The line of a run's head: "parameters  model.hf DIR, 290 tensors".
std::string parameters_line(const std::string& parameters);

// Throws Error (code not_finite), which names tensors, where a weight that this rank holds, or a router's bias, is NaN
// or Inf. `deck`: where they were loaded from.
template <class T>
void refuse_not_finite(const ParameterStorage<T>& storage, const std::vector<double>& biases, Stream& stream,
                       Arena& arena, const Deck& deck);

// Throws BadInput where the model has layers that keep no keys and values of earlier tokens.
void refuse_generation(const ModelDeck& model);

}  // namespace forge
