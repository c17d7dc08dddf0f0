#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/watchdog.hpp"

namespace forge {

// A step's report on one layer's router.
struct RouterReport {
  std::int64_t layer = 0;
  std::vector<double> load;  // assignments of each expert over the whole step, before any were dropped
  double dropped = 0;        // assignments
  double balance_loss = 0;   // mean over the scopes of E Σ f P; 1 where all experts are loaded alike
  double z_loss = 0;         // mean over the tokens of lse²
  double bias_min = 0, bias_max = 0;

  double assignments() const;
  // Load of the least and of the most loaded expert, as multiples of the mean.
  double load_min() const;
  double load_max() const;
  // Entropy of the load over log E: 1 where all experts are loaded alike, 0 where one has all.
  double entropy() const;
  double dropped_fraction() const { return assignments() > 0 ? dropped / assignments() : 0; }
};

// "[{"layer": 0, …}, …]" for metrics.jsonl.
std::string to_json(const std::vector<RouterReport>& routers);
// One line for people, over all layers; empty where there are none.
std::string routers_line(const std::vector<RouterReport>& routers);

// A step's report on a mixture's source.
struct SourceReport {
  std::string name;
  double loss = 0;          // cross-entropy per label of the step's samples of it; NaN where it gave none
  std::int64_t labels = 0;  // of the step
  std::int64_t tokens = 0;  // trained on so far
  double epochs = 0;        // of its samples, so far
};

// Means over pairs of texts: the margin of the preferred text's reward, beta (log p − log p of the reference), over the
// other text's, and the share of pairs where it is above 0.
struct PairReport {
  double margin = 0, accuracy = 0;
};
// A line for the log; "" of none.
std::string pairs_line(const std::optional<PairReport>& pairs);

// The largest attention logit of a step, before a soft cap, and how many heads of all layers QK-clip scaled down.
struct LogitReport {
  double largest = 0;
  std::int64_t clipped_heads = 0;
};

// Norms of a unit's weights behind an update, and of their change by it.
struct NormReport {
  std::string unit;
  double weights = 0, update = 0;
};

// Shares of a product's rounded numbers, of tensor x, dy or weights over all layers: beyond the format's largest
// number, and rounded to 0 without being 0.
struct RoundingReport {
  std::string product, tensor;
  double overflow = 0, underflow = 0;
};

// A rank whose computation takes longer than others': on which node ("" in one process), and how many times the
// median's of the ranks of its stage.
struct SlowRank {
  int rank = 0;
  std::string node;
  double of_median = 1;
};
struct ComputationReport {
  double median = 0;  // seconds of a step, over all ranks
  std::vector<SlowRank> slow;
};
// A line for the log; "" where none is slow.
std::string slow_ranks_line(const std::vector<SlowRank>& slow);

// A held-out set's result, for the log and metrics.jsonl.
struct ValidationRecord {
  std::string set;  // "": of data.validation_files
  double loss = 0;  // per label
  std::int64_t labels = 0;
  std::optional<double> bits_per_byte{};
  std::optional<PairReport> pairs{};  // then labels are pairs, and the loss is a mean over them
};

// A task's result, likewise.
struct TaskRecord {
  std::string task;
  std::int64_t questions = 0;
  double accuracy = 0, normalised = 0;
};

// Sums of one step over all ranks, read back once the step is done.
struct StepResult {
  double loss = 0;                 // cross-entropy per label, or the loss of a pair, before the update
  double total_loss = 0;           // with z-loss, and the losses of multi-token prediction and routers
  std::optional<double> mtp_loss;  // mean over the depths of multi-token prediction, per label of their own
  double grad_norm = 0;            // before clipping
  bool finite = true;              // false: NaN or Inf, the parameters stay as they are
  bool held_back = false;          // likewise, for a spike (train/spikes.hpp)
  bool updated() const { return finite && !held_back; }
  std::vector<RouterReport> routers;     // of the layers with experts
  std::vector<double> source_losses;     // cross-entropy per label of each source's; NaN without labels
  std::optional<PairReport> pairs;       // where samples are pairs
  std::optional<LogitReport> logits;     // with optimizer.qk_clip
  std::vector<NormReport> norms;         // every output.norms_every_steps steps, of all units of the model
  std::vector<RoundingReport> rounding;  // likewise, where products are rounded
};

// The record of every step in metrics.jsonl.
struct StepRecord : StepResult {
  std::int64_t step = 0;
  double time = 0, elapsed_seconds = 0;     // since 1970, and of the run (train/training_log.hpp): when it is written
  std::int64_t tokens = 0;                  // trained on so far
  std::optional<std::int64_t> sequences{};  // of the step, with train.batch_ramp
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double mfu = 0;
  std::int64_t peak_bytes = 0;                     // the largest of any rank
  std::vector<SourceReport> sources{};             // of a mixture
  std::optional<ComputationReport> computation{};  // every output.every_steps steps of several ranks
  StartTimes start{};                              // of the first step of a start: the times before it
  std::string spike{};                             // of this step; or, of the first step behind a return, of the return
};
std::string to_json(const StepRecord& record);
std::string to_json(const StartTimes& start);
// A line for the log; "" without sources.
std::string sources_line(const std::vector<SourceReport>& sources);

}  // namespace forge
