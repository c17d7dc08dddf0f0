#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"

namespace forge {

// The parts of its deck that a verb needs.
//   training    the model, train.steps, train.global_batch_sequences, train.sequence_tokens, optimizer.learning_rate,
//               data.files, output.directory
//   model_only  the model: model.hf or its dimensions (layers, width, heads, ffn, vocabulary)
enum class Needs { training, model_only };

// Who wrote a deck. A checkpoint's deck may have keys of earlier versions (config/read.cpp): renamed ones are read
// under today's names, and removed ones are passed over where their value changed nothing.
enum class DeckWriter { person, forge };

// A deck from untrusted YAML, then changed by options "section.key=value" in their order, the value read as YAML. A
// missing, null or empty section or key means defaults. Throws one BadInput for everything that is wrong: unknown keys
// (with the nearest known one), wrong types, values out of range, illegal words, missing keys; each with
// file:line:column, or the option. Reads no other file and knows nothing of ranks: check_deck (config/check.hpp) is
// next.
Deck read_deck(const std::string& yaml_text, const std::string& file_name, const std::vector<std::string>& set_options,
               Needs needs = Needs::training, DeckWriter writer = DeckWriter::person);

}  // namespace forge
