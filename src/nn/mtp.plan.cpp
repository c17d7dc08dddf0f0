#include "nn/mtp.plan.hpp"

namespace forge {

void add_mtp_sends(Sends& sends, Pass pass, bool recompute) {
  if (pass == Pass::backward_weight || recompute) return;
  add_embedding_sends(sends, pass);
}

}  // namespace forge
