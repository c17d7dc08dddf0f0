#include "nn/embedding.plan.hpp"

namespace forge {

void add_embedding_sends(Sends& sends, Pass pass) {
  sends.rows(pass == Pass::forward ? Collective::reduce_scatter : Collective::all_gather);
}

}  // namespace forge
