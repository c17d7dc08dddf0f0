#include "layout/stage_sends.hpp"

#include "nn/block.plan.hpp"
#include "nn/embedding.plan.hpp"
#include "nn/head.plan.hpp"
#include "nn/mtp.plan.hpp"

namespace forge {

std::vector<Sent> sends_of(const BufferContext& c, const StageLayer& layer, Pass pass, bool recompute) {
  Sends sends(c);
  switch (layer.kind) {
    case LayerKind::block:
      add_block_sends(sends, layer.number, pass, recompute);
      break;
    case LayerKind::embedding:
      add_embedding_sends(sends, pass);
      break;
    case LayerKind::mtp_input:
      add_mtp_sends(sends, pass, recompute);
      break;
    case LayerKind::head:
      add_head_sends(sends);
      break;
    default:
      break;
  }
  return sends.list;
}

Operations operations_of(const BufferContext& c, int cp_rank, const StageLayer& layer, Pass pass, bool recompute) {
  Operations o(c, cp_rank);
  switch (layer.kind) {
    case LayerKind::block:
      add_block_operations(o, layer.number, pass, recompute);
      break;
    case LayerKind::embedding:
      add_embedding_operations(o, pass);
      break;
    case LayerKind::norm:
      add_norm_operations(o, pass, o.S, o.spec.C());
      break;
    case LayerKind::mtp_input:
      add_mtp_operations(o, pass, recompute);
      break;
    case LayerKind::head:
      add_head_operations(o);
      break;
    default:
      break;
  }
  return o;
}

}  // namespace forge
