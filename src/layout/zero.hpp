#pragma once

namespace forge {

// How the ranks of a shard group (dp_shard x cp; of experts those of edp that shard) share a unit's state (Rajbhandari
// et al. 2020, "ZeRO").
struct Zero {
  int stage = 0;               // 1: optimizer state, 2: also gradients, 3: also parameters
  bool reduce_each = false;    // train.accumulate sharded: gradients are reduced after each microbatch into the shard
  bool keep_gathered = false;  // train.gather step: stage 3 gathers a unit once a step
  int shards = 1, shard = 0;
  int replicas = 1, replica = 0;  // of the shard group (dp_replicate; of experts Mesh's expert replicas)
  // optimizer.gradients: sums of gradients over microbatches are kept in the compute type, and rounded to it.
  bool rounds_gradients = false;

  // Whether the rank's master weights, moments and reduced gradients are a shard of the unit.
  bool shards_state() const { return stage >= 1; }
  // Whether a microbatch's gradients of matrices have a buffer of a pool, from which they are added to the step's.
  bool adds_in_buffers() const { return reduce_each || rounds_gradients; }
  // Whether the unit's compute weights come from other ranks, too.
  bool gathers() const { return shards_state() && shards > 1; }
  // Whether the whole unit's compute weights have a buffer of their own for the whole run.
  bool keeps_whole() const { return stage < 3 || keep_gathered || shards == 1; }
};

}  // namespace forge
