#include "model/optimizer_state.hpp"

namespace forge {

OptimizerState optimizer_state(const OptimizerDeck& optimizer, DType standard) {
  const DType type = optimizer.moments == MomentType::bf16 ? DType::bf16 : standard;
  return {{"first_moment", type}, {"second_moment", type}};
}

}  // namespace forge
