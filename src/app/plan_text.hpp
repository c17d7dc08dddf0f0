#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/json.hpp"
#include "plan/memory_course.hpp"
#include "predict/machine.hpp"
#include "predict/neighbours.hpp"
#include "predict/search.hpp"

namespace forge {

// A deck's prediction as `forge plan` prints it: the step and its interval, its parts, memory by category, bottleneck.
std::string plan_text(const Machine& machine, const Outcome& outcome);
// Gains and costs of the neighbours of the outcome's deck, with time and memory: the first `most`, and of each kind the
// first.
std::string neighbours_text(const Outcome& outcome, const std::vector<PredictedNeighbour>& neighbours,
                            std::size_t most);
// The best layouts of a search as a table, each with its bottleneck.
std::string search_text(const Machine& machine, const SearchResult& result);

// A note that predictions for so many GPUs have met no run of forge yet; "" for one GPU, cores and other programs.
std::string comparison_note(const Machine& machine, std::int64_t ranks);

// Everything as JSON: of the deck, and of a search on so many ranks.
std::string plan_json(const Machine& machine, const Outcome& outcome, const std::vector<PredictedNeighbour>& neighbours,
                      const std::vector<std::string>& warnings);
JsonLine outcome_json(const Machine& machine, const Outcome& outcome);
JsonLine search_json(const Machine& machine, const SearchResult& result, int ranks);
// The simulated step in the format of Chrome's tracing and Perfetto: a process a pipeline rank, a thread a stream, and
// its arena by category (`memory`, by pipeline rank) as a counter.
std::string plan_trace(const Outcome& outcome, const std::vector<MemoryCourse>& memory);

// The keys that a search gives values, in the key table's order, with the deck's.
std::vector<std::pair<std::string, std::string>> layout_values(const Deck& deck);

// "GPU", or "rank" where ranks are processes on cores.
const char* rank_word(const Machine& machine);
// "products 61 %": the part of the step that takes most of the busiest rank's time.
std::string binding_part(const Outcome& outcome);

}  // namespace forge
