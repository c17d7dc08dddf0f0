#pragma once

#include <cstdint>
#include <vector>

#include "core/to_size.hpp"
#include "layout/boxes.hpp"
#include "layout/split.hpp"
#include "model/parameters.hpp"
#include "model/update_rule.hpp"

namespace forge {

// How the ranks of a shard group (dp_shard x cp; of experts the ranks of edp that shard) share a unit's state
// (Rajbhandari et al. 2020, "ZeRO").
struct Zero {
  int stage = 0;               // 1: optimizer state, 2: also gradients, 3: also parameters
  bool reduce_each = false;    // train.accumulate sharded: gradients are reduced after each microbatch into the shard
  bool keep_gathered = false;  // train.gather step: stage 3 gathers a unit once a step
  int shards = 1, shard = 0;
  int replicas = 1, replica = 0;  // of the shard group (dp_replicate; of experts Mesh's expert replicas)
  // optimizer.gradients: sums of gradients over microbatches are kept in the compute type, and rounded to it.
  bool rounds_gradients = false;
  int nodes = 1;   // over which a sum over the shards has two levels; 1: one level
  int tracks = 1;  // passes that run at once, each of which gathers for itself: 2 with train.overlap = pairs

  // Whether the rank's master weights, moments and reduced gradients are a shard of the unit.
  bool shards_state() const { return stage >= 1; }
  // Whether a microbatch's gradients of matrices have a buffer of a pool, from which they are added to the step's.
  bool adds_in_buffers() const { return reduce_each || rounds_gradients; }
  // Whether the unit's compute weights come from other ranks, too.
  bool gathers() const { return shards_state() && shards > 1; }
  // Whether the whole unit's compute weights have a buffer of their own for the whole run.
  bool keeps_whole() const { return stage < 3 || keep_gathered || shards == 1; }
};

// The model as one tensor-parallel rank computes it: its heads, feed-forward columns, vocabulary rows and, of `etp`
// ranks, columns of experts. More than K ranks have one of the K key and value heads each, tp / K neighbours the same
// one. The vocabulary is padded to a multiple of tp.
ModelSpec local_spec(const ModelSpec& spec, int tp, int etp = 1);

// A rank's piece of rows or columns that a group of ranks splits.
struct SplitPiece {
  Range range;          // of the tensor's; perhaps empty
  std::int64_t extent;  // of every rank's piece, padding included
  int copies = 1;       // neighbours that hold the same piece; the first one owns it
};
// `extent`: of the tensor along split.dim.
SplitPiece piece_of(const Split& split, std::int64_t extent, int ranks, int rank);

// tp neighbours that hold the same key and value heads.
int kv_copies(const ModelSpec& spec, int tp);

// Vocabulary rows of a tp rank, without padding: [begin, end), perhaps empty.
Range vocabulary_rows(const ModelSpec& spec, int tp, int tp_rank);

// A part of a whole tensor that a rank holds, row-major and without a gap at `offset` of the unit's flat buffer.
struct LocalPiece {
  std::size_t parameter = 0;  // in LocalUnit::parameters
  Box box;                    // of the whole tensor
  std::int64_t offset = 0;
  bool owned = true;  // counted by this tp rank in norms and written by it; the copies elsewhere are not

  Range range() const { return {offset, offset + box.size()}; }  // of the unit's flat buffer
};

// A unit as one tensor-parallel rank lays it out, in one flat buffer: matrices, the ones split by tp first, then
// vectors, the ones split by tp last. A group (the pieces of one member) starts at a multiple of unit_alignment; gaps
// hold zeros and stay zero. ZeRO cuts the buffer into equal ranges.
struct LocalUnit {
  UnitKind kind = UnitKind::block;
  std::int64_t layer = -1;  // of a block
  ParameterList parameters;
  std::vector<LocalPiece> pieces;
  std::int64_t elements = 0;           // padding included: a multiple of shards · unit_alignment
  std::int64_t vectors_begin = 0;      // from here: vectors; their gradients are summed over the step in place
  std::int64_t replicated_begin = 0;   // from here up to replicated_end: the same on every tp rank, of experts on
  std::int64_t replicated_end = 0;     // every etp rank; gradients are summed over those
  std::vector<Range> copied;           // key and value heads that tp neighbours share; gradients are summed over those
  std::vector<ParameterGroup> groups;  // where the members of the unit's list stand
  Zero zero;                           // how data-parallel ranks share it
  std::vector<UpdateRule> rules;       // by parameter; empty: nothing is updated
  bool tied_copy = false;              // of the token table: another stage counts it
  bool frozen = false;                 // weights of the compute type alone: no gradients, nothing is updated

  // Experts are shared by other groups of ranks than dense units.
  bool is_experts() const { return is_of_experts(kind); }
  // This rank's range of the flat buffer, among the ranks of its shard group.
  Range shard() const {
    const std::int64_t size = elements / zero.shards;
    return {size * zero.shard, size * (zero.shard + 1)};
  }
  // The rule of a piece, where rules are known.
  const UpdateRule& rule_of(std::size_t piece) const { return rules.at(pieces[piece].parameter); }
  // A piece with the gap behind it.
  Range range_of(std::size_t piece) const {
    return {pieces[piece].offset, piece + 1 < pieces.size() ? pieces[piece + 1].offset : elements};
  }
  // The elements that this rank updates.
  Range state() const { return zero.shards_state() ? shard() : Range{0, elements}; }
};
inline constexpr std::int64_t unit_alignment = 64;

// The first elements of a unit, to whose gradients products alone add: its matrices, but for tables. The first product
// of such a sum overwrites the buffer.
std::int64_t fresh_elements(const LocalUnit& unit);

// Where a rank stands. Experts have groups of their own: a rank holds E / ep experts, and Fe / etp columns of each.
struct LocalLayout {
  int tp = 1, tp_rank = 0;
  Zero zero{};
  int ep = 1, ep_rank = 0;
  int etp = 1, etp_rank = 0;
  Zero expert_zero{};
};
LocalUnit local_unit(const ModelSpec& spec, const Unit& unit, const LocalLayout& layout);

// Whether a stage needs the token table: for the embedding, as the output matrix, or for multi-token layers.
bool holds_token_table(const ModelSpec& spec, const StageContent& stage);

// The units of a rank that holds these stages, in the order of parameter_units. A tied output matrix is the token
// table.
std::vector<LocalUnit> local_units(const ModelSpec& spec, const std::vector<Unit>& units,
                                   const std::vector<StageContent>& stages, const LocalLayout& layout);

// Units of a rank that holds the whole model alone.
std::vector<LocalUnit> whole_units(const ModelSpec& spec);

// A stretch of a flat buffer whose elements follow each other in the whole tensor, too.
struct ElementRun {
  const LocalPiece* piece;
  std::int64_t local, global, count;  // first element here, in the tensor's row-major order; how many
};
// The runs of a range of the unit's buffer, in order; padding is left out.
std::vector<ElementRun> runs_of(const LocalUnit& unit, const Range& range);

// The parts of a unit's shard that this rank owns: every element of the model is owned by one rank of a replica.
std::vector<Range> owned_ranges(const LocalUnit& unit);
// The parts of a unit's shard that this rank counts in norms: every element of the model is counted by one rank.
std::vector<Range> counted_ranges(const LocalUnit& unit);

}  // namespace forge
