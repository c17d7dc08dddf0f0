#pragma once

#include "comm/mesh.hpp"
#include "core/short_list.hpp"
#include "kernels/fp8/fp8_history_rows.hpp"
#include "layout/stage.hpp"
#include "nn/context.hpp"
#include "parallel/storage.hpp"
#include "plan/fp8/coded_units.hpp"

namespace forge {

// The largest magnitudes of weights of products in FP8 (plan/fp8/coded_units.hpp), as the last take_amaxes() saw them;
// and gathers of weights as codes with the scales of these, which layers get decoded.
template <class T>
class CodedGather {
 public:
  CodedGather(Arena& arena, Stream& compute, const BufferContext& context, const CodedUnits& units,
              const AmaxHistory& history);

  bool has(std::size_t unit) const { return units_.has(unit); }
  // Takes the amaxes of all units' weights, over all ranks that share them. Collective, in the compute stream.
  void take_amaxes(Stream& compute, const ParameterStorage<T>& storage, Mesh& mesh);
  // A unit's weights into `to`, over its shards.
  void gather(Stream& stream, std::size_t u, const RankUnit<T>& unit, Communicator& shards, View<T, 1> to);
  // The amaxes of a layer's weights; empty: products find them.
  WeightAmaxes amaxes_of(const StageLayer& layer) const;
  // Counts the numbers that were gathered as codes before a block's forward pass, in steps that count.
  void count(const Context<T>& ctx, const ParameterStorage<T>& storage, const StageLayer& layer) const;

 private:
  // The rank's part of a unit's weights, as often as the ranks that share the unit would count the whole of it.
  void count(const Context<T>& ctx, const RankUnit<T>& unit, std::size_t u) const;
  // The largest magnitudes that give the scales: of the numbers at hand, or of the steps before.
  View<float, 1> scaling_of(const LocalUnit& unit, const CodedMatrices& m) const;
  View<float, 1> amax_of(const CodedMatrices& m) const { return buffers_.amax.slice(m.first, m.first + m.groups()); }
  void gather_others(Stream& stream, const CodedUnit& coded, const RankUnit<T>& unit, Communicator& shards,
                     View<T, 1> to);

  const BufferContext& context_;
  const CodedUnits& units_;
  CodedBuffers<T> buffers_;
  const AmaxHistory& history_;  // of the delayed recipe, whose scales come from the steps before
};

}  // namespace forge
