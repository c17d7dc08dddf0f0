#pragma once

#include <string>
#include <vector>

#include "comm/world.hpp"
#include "train/trainer.hpp"

namespace forge {

// The data of a job, on all of its ranks, which agree on it (agree_on_data). Where it is packed the first rank opens it
// before the others, which then find the plans that it made; on a file system of their own they make theirs.
TrainingData open_data(const RunSetup& setup, const World& world);

// Legal but doubtful combinations of a deck's data and tokenizer, a sentence each: ids that data.dtype can't
// hold, a tokenizer of another vocabulary than the model's, a file twice. `trains`: also a tokenizer that can't
// be read.
std::vector<std::string> data_warnings(const Deck& deck, bool trains);

}  // namespace forge
