#pragma once

#include "nn/batch.plan.hpp"
#include "nn/head.hpp"

namespace forge {

// Puts the rows of a microbatch into a slot's.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void load(Stream& stream, int microbatch, const Batch& to) = 0;
  // What differs (Batch::list_shifted) at depth `depth`, from 1, of multi-token prediction.
  virtual void load_shifted(Stream& stream, int microbatch, int depth, const Batch& to) = 0;
};

// Multi-token prediction in a step, by depth: what a label's loss weighs in total_loss, and where sums of loss and z go
// (depths, 2).
struct MtpLosses {
  ShortList<double, most_mtp_depths> per_label;
  View<double, 2> sums;
};

// Where the tasks of a step, or of an evaluation, find batches and add losses.
struct StepInputs {
  BatchSource* source = nullptr;
  LossScale scale;
  View<double, 1> loss_sum, z_sum;
  MtpLosses mtp;
  View<double, 1> source_sums;  // losses by their rows' source; empty: they are not told apart
  int first_microbatch = 0;     // of the source
};

}  // namespace forge
