#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/session.hpp"
#include "train/training_data.hpp"

namespace forge {

// Log-probabilities of the texts of preference pairs by the reference, the weights that a run starts with: Σ log p of
// each text's labels. In a file: "forgelp1", keys of data and weights, number of values (u64 each); the values of all
// training pairs and then of each held-out set (float64); the sum of the values' bits (u64). Until it is whole
// it is PATH.partial, which the next start goes on with.

// preference.reference, or its default.
std::string reference_path(const Deck& deck);

// Texts of pairs in all sets of a run: the texts of each set's samples.
std::int64_t text_count(const TrainingData& data);
// The key of all that training and validation read, in this order; reads the token files.
std::uint64_t key_of_texts(const TrainingData& data, Heartbeat* heartbeat);
// The key of the session's model: weights, keys, arithmetic; the same on any layout. Adapters whose B is 0 do not
// change it. All ranks.
template <class T>
std::uint64_t key_of_weights(Session<T>& session);

// log p of all texts by the session's weights, from text `first` on (even), a part at a time: take(first, values) on
// all ranks. All ranks call it together.
template <class T>
void score_texts(Session<T>& session, const TrainingData& data, std::int64_t first,
                 const std::function<void(std::int64_t first, const std::vector<double>& values)>& take);

// Gives the sets their parts of all texts' log-probabilities.
void give_references(TrainingData& data, const std::vector<double>& all);
// Gives them the file's values. Returns its last word, by which a restart knows it again. BadInput: it isn't
// whole, or of other data.
std::uint64_t read_references(const std::string& path, TrainingData& data);

// Keys of the file that a run needs, which starts with step 1 and these weights; those of the data on the first rank.
struct ReferenceKeys {
  std::uint64_t data = 0, weights = 0;
  bool whole = false;  // the file is there
};
// Where the file is there: BadInput if it is not the run's, before anything is written; else the sets have its values.
// All ranks.
template <class T>
ReferenceKeys check_references(Session<T>& session, TrainingData& data, const std::string& path);
// Makes the file where there is none. A line for the log. All ranks.
template <class T>
std::string make_references(Session<T>& session, const TrainingData& data, const std::string& path,
                            const ReferenceKeys& keys);

}  // namespace forge
