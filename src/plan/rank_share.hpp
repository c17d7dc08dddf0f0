#pragma once

#include <vector>

#include "layout/factored_moments.hpp"
#include "layout/mesh_shape.hpp"
#include "layout/stage.hpp"
#include "layout/whole_matrices.hpp"
#include "nn/generation.plan.hpp"
#include "plan/fp8/coded_units.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// One rank's part of a model on a mesh: a pure function of deck, mesh and rank, so that any rank can compute any
// other's.
struct RankShare {
  int pp_rank = 0, tp_rank = 0, cp_rank = 0;
  int data_rank = 0;                 // among the ranks that read different data
  std::vector<StageContent> chunks;  // by chunk of the schedule
  std::vector<LocalUnit> units;
  std::vector<std::vector<StageLayer>> layers;  // by chunk: its layers, in order
  int table_stages = 1;                         // stages that hold the token table, where this rank's does
  WholeMatrices matrices;                       // none where the optimizer doesn't need them
  FactoredMoments factored;                     // likewise
  bool clips_heads = false;                     // optimizer.qk_clip
  bool reports_norms = false;                   // output.norms_every_steps
  CodedUnits coded;                             // of weights that products round
  int tp = 1;                                   // tensor-parallel ranks

  // Moments of rows and columns of matrices, or states of matrices that it owns, on the rank.
  std::int64_t line_moments() const { return matrices.kept + factored.moments; }
  // The model's own blocks, and whether its head is here.
  KeptShare kept() const;
};

// `places`: of the schedule's stages; `stages`: the contents of each (split_layers).
struct ModelShare {
  const Deck& deck;
  const ModelSpec& spec;
  const std::vector<Unit>& units;
  const MeshShape& mesh;
  const std::vector<StagePlacement>& places;
  const std::vector<StageContent>& stages;
};
// `matrices`: with the rounds of optimizers that need whole matrices, which take a while.
RankShare rank_share(const ModelShare& model, int rank, bool matrices = true);

// pp coordinates that hold the token table (layout/local_units.hpp: holds_token_table), in increasing order.
std::vector<int> token_table_stages(const ModelShare& model);

}  // namespace forge
