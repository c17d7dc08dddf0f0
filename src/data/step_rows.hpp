#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/sample.hpp"
#include "data/sample_order.hpp"
#include "data/sample_stream.hpp"

namespace forge {

// Tokens of a sample that stand one behind the other in a file and belong to one document.
struct SamplePart {
  std::string file;
  std::int64_t at = 0;      // its first input in the sample
  std::int64_t length = 0;  // inputs
  std::int64_t first = 0;   // the token of the file that this input is
  // The document's first token, as a place in the file, and its number in the file, where an index has one. −1: the
  // data has no documents, or their number is not known.
  std::int64_t document_first = -1, document = -1;
};

// A sequence of a step's batch.
struct StepRow {
  explicit StepRow(std::int64_t T) : sample(T) {}

  std::int64_t place = 0;         // in the run's order
  std::int64_t data_rank = 0;     // of the ranks that read different data, the one that reads it …
  std::int64_t microbatch = 0;    // … in this microbatch, from 0
  std::string source;             // "": the data is no mixture
  std::int64_t number = 0;        // of the sample in the source
  Sample sample;                  // as training reads it
  std::vector<SamplePart> parts;  // without filler
};

// Row `row` (0 … G−1) of step s, as training reads it, on any layout; `share` tells the rank that reads it. Reads
// the token files; throws BadInput as TokenSet::read does.
StepRow row_of_step(const SampleStream& stream, const BatchShare& share, std::int64_t step, std::int64_t row);

}  // namespace forge
