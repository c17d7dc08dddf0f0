#pragma once

#include <vector>

#include "fp8/scaled_product.hpp"
#include "layout/local_units.hpp"
#include "layout/mesh_shape.hpp"
#include "nn/segments.plan.hpp"

namespace forge {

// Weights of products in FP8 whose largest magnitudes (amax) are taken once for each update: of all blocks where
// products keep amaxes (fp8/saved_amaxes.hpp), and weights that ZeRO-3 gathers as codes (train.fp8_gather), one byte a
// number; the other tensors of a unit gathered so, norms, biases, routers, are gathered as they are. A scale belongs to
// the whole model's tensor: each rank takes the amaxes of its part's numbers, and an all-reduce over all that share the
// tensor makes them the model's.

// Weights of a product, W(N,K) of each expert, that stand one below the other in a unit.
struct CodedMatrices {
  BlockProduct product{};
  std::int64_t offset = 0;  // in the unit
  std::int64_t count = 1;
  ScaledOperand each;      // how its numbers share scales
  std::int64_t lines = 0;  // first rows of each, which this rank counts in reports
  std::int64_t first = 0;  // where their amaxes begin among the rank's

  std::int64_t groups() const { return count * each.groups(); }
  Range range() const { return {offset, offset + count * each.rows * each.columns}; }
};

struct CodedUnit {
  std::vector<CodedMatrices> matrices;  // in the unit's order; none: products find their amaxes
  bool gathered = false;                // as codes
  std::vector<Range> others;            // of the unit: between the matrices and behind them
  std::int64_t others_of_shard = 0;     // the most of these in a rank's shard: each rank sends as many
};

// The coded units of a rank.
struct CodedUnits {
  std::vector<CodedUnit> units;         // by unit of the rank; empty: none of them has such weights
  std::int64_t dense = 0, experts = 0;  // amaxes of dense units, and behind them amaxes of experts
  std::int64_t codes = 0, others = 0;   // for a gather of the largest unit

  // Whether the unit is gathered as codes.
  bool has(std::size_t unit) const { return unit < units.size() && units[unit].gathered; }
  std::int64_t amaxes() const { return dense + experts; }
};
CodedUnits coded_units(const BufferContext& c, const std::vector<LocalUnit>& units, int tp_rank, int etp_rank);
// Lists the kernels that take the amaxes of the rank's parts of the weights.
void list_weight_amaxes(Segments& list, const CodedUnits& coded, const std::vector<LocalUnit>& units);

// Resolves the blocks whose weights the deck gathers as codes: experts' where a mesh shards these, and others'. Blocks
// of multi-token prediction keep theirs: the unit has a matrix that isn't in FP8, as large as theirs.
void resolve_coded(RoundingOptions& rounding, const Deck& deck, const MeshShape& mesh);
// Whether the deck asks for gathers as codes.
bool gathers_codes(const Deck& deck);
// Experts in FP8 need a block that has experts and is in FP8: else BadInput.
void check_rounded_experts(const ModelSpec& spec, const RoundingOptions& rounding);

// Memory for gathering and for amaxes, for the whole run.
template <class T>
struct CodedBuffers {
  View<std::uint8_t, 1> codes;  // of a whole unit
  View<T, 1> others;            // (shards, others_of_shard)
  View<float, 1> amax;          // of all units' weights

  void list(BufferLister& l, const CodedUnits& units) {
    if (units.amaxes() == 0) return;
    if (units.codes > 0) l.add(codes, "gathered codes", units.codes, 1);
    if (units.others > 0) l.add(others, "what is gathered beside codes", units.others, 1);
    l.add(amax, "largest magnitudes of weights", units.amaxes(), 1);
  }
};

}  // namespace forge
