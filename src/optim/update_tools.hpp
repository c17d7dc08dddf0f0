#pragma once

#include "comm/mesh.hpp"
#include "device/arena.hpp"
#include "kernels/gemm/gemm.hpp"
#include "layout/factored_moments.hpp"
#include "layout/whole_matrices.hpp"

namespace forge {

// A rank's plans, memory and groups for updates that are not element by element.
template <class T>
struct UpdateTools {
  const WholeMatrices& matrices;
  const FactoredMoments& factored;
  const BufferContext& buffers;
  Arena& arena;
  Gemm& gemm;
  Mesh& mesh;
  View<acc_t<T>, 1> line_moments;  // of rows and columns; perhaps empty
  const ModelSpec& spec;           // of the whole model
  // For optimizer.qk_clip (optim/head_clip.hpp): the step's largest logits and their factors; perhaps empty.
  View<acc_t<T>, 2> peaks, head_factors;
  std::uint64_t seed = 0;  // train.seed, of rounding
};

}  // namespace forge
