#include "layout/layer_kinds.hpp"

#include <algorithm>
#include <memory>

namespace forge {

namespace {

using Units = std::vector<std::size_t>;
constexpr Pass F = Pass::forward, B = Pass::backward_input, W = Pass::backward_weight;

void add_stream(BufferLister& l, auto& member, std::string_view name, Reader last) {
  l.add(member, name, l.S, l.spec.C(), last);
}

// What most kinds of layers have: passes F and B, no buffers, nothing to compute or send.
struct AnyLayer {
  static constexpr bool recomputes = false;
  static bool does(const StageLayer&, Pass pass) { return pass != W; }
  static Units reads(const StageLayer& layer, Pass) {
    return {layer.unit, layer.second, layer.adapter, layer.expert_adapter};
  }
  static Units completes(const StageLayer&, Pass) { return {}; }
  static void list_saved(BufferLister&, const StageContent&, const StageLayer&, auto&) {}
  static void list_recomputed(BufferLister&, const StageLayer&, auto&) {}
  static void list_gathered(BufferLister&, const StageLayer&, auto&) {}
  static void list_gradients(BufferLister&, const StageLayer&, auto&) {}
  // Besides what is recomputed and, of a block, the gradients.
  static void list_left(BufferLister&, const StageContent&, const StageLayer&, auto&) {}
  template <class T>
  static std::size_t scratch(const BufferContext&, const StageLayer&, Pass, bool) {
    return 0;
  }
  static void segments(Segments&, const StageLayer&, Pass, bool) {}
};

struct ArrivalsLayer : AnyLayer {
  static bool does(const StageLayer&, Pass pass) { return pass == B; }
};

struct EmbeddingLayer : AnyLayer {
  static bool does(const StageLayer& layer, Pass pass) {  // nothing lies below
    return pass == F || (pass == W && !layer.idle);
  }
  static Units completes(const StageLayer& layer, Pass pass) {
    return pass == W ? Units{layer.second, layer.unit} : Units{};
  }
  static void list_left(BufferLister& l, const StageContent& stage, const StageLayer&, auto& to) {
    if (stage.layers > 0 || stage.ends_model()) add_stream(l, to.d_out, "gradient of the output", l.W);
  }
  template <class T>
  static std::size_t scratch(const BufferContext& c, const StageLayer&, Pass, bool) {
    return counted_bytes<EmbeddingScratch<T>>(c);
  }
  static void segments(Segments& list, const StageLayer& layer, Pass pass, bool) {
    list_embedding(list, pass, !list.spec.rope(), {!layer.frozen, !layer.second_frozen});
  }
};

// W of experts runs with B: rows of later rounds exist only there.
struct BlockLayer : AnyLayer {
  static constexpr bool recomputes = true;
  static bool does(const StageLayer& layer, Pass pass) { return pass != W || layer.has_weights(); }
  static Units completes(const StageLayer& layer, Pass pass) {
    const Units of_experts{layer.second, layer.expert_adapter};
    if (pass == Pass::backward) return {layer.second, layer.expert_adapter, layer.unit, layer.adapter};
    return pass == B ? of_experts : pass == W ? Units{layer.unit, layer.adapter} : Units{};
  }
  static void list_saved(BufferLister& l, const StageContent& stage, const StageLayer& layer, auto& to) {
    if (layer.state > 0 || layer.number > stage.layer(0))
      add_stream(l, to.x, "block input", l.spec.norms_before() ? l.B : l.W);
    to.block.list(l, layer.number);
  }
  static void list_recomputed(BufferLister& l, const StageLayer& layer, auto& to) { to.block.list(l, layer.number); }
  static void list_gathered(BufferLister& l, const StageLayer& layer, auto& to) {
    to.block.list_gathered(l, layer.number);
  }
  static void list_gradients(BufferLister& l, const StageLayer& layer, auto& to) {
    to.block.list_gradients(l, layer.number);
  }
  static void list_left(BufferLister& l, const StageContent& stage, const StageLayer& layer, auto& to) {
    // The last one's output stands on an edge, unless the final norm is here.
    const bool ends = layer.state == 0 && layer.number + 1 == stage.layer(stage.layers) && !stage.final_norm();
    if (!ends) add_stream(l, to.d_out, "gradient of the output", l.W);
  }
  template <class T>
  static std::size_t scratch(const BufferContext& c, const StageLayer& layer, Pass pass, bool recompute) {
    return block_scratch(c, layer.number, pass, recompute);
  }
  static void segments(Segments& list, const StageLayer& layer, Pass pass, bool recompute) {
    list.frozen = layer.frozen;
    list.frozen_experts = layer.second_frozen;
    list_block(list, layer.number, pass, recompute);
  }
};

struct NormLayer : AnyLayer {
  static Units completes(const StageLayer& layer, Pass pass) {
    return pass == B && layer.state == 0 ? Units{layer.unit} : Units{};
  }
  static void list_saved(BufferLister& l, const StageContent& stage, const StageLayer& layer, auto& to) {
    if (layer.state > 0 || stage.layers > 0) to.state.list_input(l);
    to.state.list_of_norm(l, layer.state > 0);
    if (!is_private_state(stage, layer)) to.state.list_state(l);
  }
  template <class T>
  static std::size_t scratch(const BufferContext& c, const StageLayer&, Pass pass, bool) {
    return pass == B ? counted_bytes<NormScratch<T>>(c) : 0;
  }
  static void segments(Segments& list, const StageLayer& layer, Pass pass, bool) {
    list.frozen = layer.frozen;
    list_norm(list, pass, list.S, list.spec.C(), false);
  }
};

struct HeadLayer : AnyLayer {
  static bool does(const StageLayer&, Pass pass) { return pass == F; }
  static Units completes(const StageLayer& layer, Pass pass) { return pass == F ? Units{layer.unit} : Units{}; }
  static void list_saved(BufferLister& l, const StageContent& stage, const StageLayer& layer, auto& to) {
    if (layer.state < stage.states_in && !stage.final_norm()) to.state.list_of_head(l);
  }
  template <class T>
  static std::size_t scratch(const BufferContext& c, const StageLayer&, Pass, bool) {
    return counted_bytes<HeadScratch<T>>(c);
  }
  static void segments(Segments& list, const StageLayer& layer, Pass, bool) {
    list.frozen = layer.frozen;
    list_head(list, layer.state == 0);
  }
};

// Gradients of the table's rows wait for nothing: B takes them.
struct MtpInputLayer : BlockLayer {
  static Units reads(const StageLayer& layer, Pass pass) {
    return pass == F ? Units{layer.second, layer.unit} : Units{layer.unit};
  }
  static void list_saved(BufferLister& l, const StageContent&, const StageLayer&, auto& to) { to.mtp.list(l); }
  static void list_recomputed(BufferLister& l, const StageLayer&, auto& to) { to.mtp.list(l); }
  static void list_gathered(BufferLister&, const StageLayer&, auto&) {}
  static void list_gradients(BufferLister&, const StageLayer&, auto&) {}
  static void list_left(BufferLister& l, const StageContent&, const StageLayer&, auto& to) {
    add_stream(l, to.d_out, "gradient of the block's input", l.W);
  }
  template <class T>
  static std::size_t scratch(const BufferContext& c, const StageLayer&, Pass pass, bool recompute) {
    const std::size_t rows = counted_bytes<EmbeddingScratch<T>>(c);
    if (recompute || pass == W) return 0;
    if (pass == B) return rows + counted_bytes<MtpScratch<T>>(c);
    MtpBuffers<T> made;
    BufferLister dropped(c, BufferLister::Part::recomputed);
    made.list(dropped);
    return std::max(rows, aligned_bytes(dropped.list));
  }
  static void segments(Segments& list, const StageLayer&, Pass pass, bool recompute) {
    list_mtp(list, pass, recompute);
  }
};

// f(a kind's struct).
template <class Visitor>
auto visit(const StageLayer& layer, Visitor f) {
  switch (layer.kind) {
    case LayerKind::arrivals:
      return f(ArrivalsLayer());
    case LayerKind::embedding:
      return f(EmbeddingLayer());
    case LayerKind::block:
      return f(BlockLayer());
    case LayerKind::norm:
      return f(NormLayer());
    case LayerKind::head:
      return f(HeadLayer());
    case LayerKind::mtp_input:
      return f(MtpInputLayer());
    case LayerKind::departures:
      break;
  }
  return f(AnyLayer());
}

// The run's context as a layer has it: where that is under a policy of its own, another one.
class OfLayer {
 public:
  OfLayer(const BufferContext& run, const StageLayer& layer) : run_(run) {
    if (policy_of(layer, run) == run.recompute) return;
    own_ = std::make_shared<BufferContext>(run);
    own_->recompute = Recompute::full;
  }
  const BufferContext& operator*() const { return own_ ? *own_ : run_; }
  Segments segments(int cp_rank) const { return own_ ? Segments(own_, cp_rank) : Segments(run_, cp_rank); }

 private:
  const BufferContext& run_;
  std::shared_ptr<BufferContext> own_;
};

Units present(Units units) {
  std::erase(units, no_unit);
  return units;
}

}  // namespace

std::string_view name_of(LayerMemory memory) {
  constexpr std::string_view names[layer_memory_count] = {"saved",     "left",  "recomputed",
                                                          "gradients", "state", "stream"};
  return names[to_size(memory)];
}

bool is_private_state(const StageContent& stage, const StageLayer& layer) {
  return layer.kind == LayerKind::norm && stage.head && layer.state + 1 == stage.states_out();
}

bool does(const StageLayer& layer, Pass pass) {
  if (layer.idle && pass != F) return false;
  if (pass == Pass::backward) return layer.kind == LayerKind::block && layer.has_weights();
  return visit(layer, [&](auto kind) { return kind.does(layer, pass); });
}

bool recomputes(const StageLayer& layer) {
  return visit(layer, [](auto kind) { return kind.recomputes; });
}

Recompute policy_of(const StageLayer& layer, const BufferContext& run) {
  return layer.recomputes_all ? Recompute::full : run.recompute;
}

std::vector<std::size_t> units_read(const StageLayer& layer, Pass pass) {
  if (!does(layer, pass) || pass == W) return {};
  return present(visit(layer, [&](auto kind) { return kind.reads(layer, pass); }));
}

std::vector<std::size_t> units_completed(const StageLayer& layer, Pass pass) {
  Units units = visit(layer, [&](auto kind) { return kind.completes(layer, pass); });
  std::erase_if(units, [&](std::size_t unit) {
    return unit == layer.unit ? layer.frozen : unit == layer.second && layer.second_frozen;
  });
  return present(std::move(units));
}

template <class T>
BufferList buffers_in(LayerMemory memory, const BufferContext& c, const StageContent& stage, const StageLayer& layer,
                      LayerBuffers<T>& to) {
  const OfLayer own(c, layer);
  BufferLister l(*own, memory == LayerMemory::saved ? BufferLister::Part::saved : BufferLister::Part::recomputed);
  visit(layer, [&](auto kind) {
    if (memory == LayerMemory::saved) kind.list_saved(l, stage, layer, to);
    if (memory == LayerMemory::recomputed || memory == LayerMemory::left) kind.list_recomputed(l, layer, to);
    if (memory == LayerMemory::recomputed) kind.list_gathered(l, layer, to);
    if (memory == LayerMemory::gradients || memory == LayerMemory::left) kind.list_gradients(l, layer, to);
    if (memory == LayerMemory::left) kind.list_left(l, stage, layer, to);
  });
  if (memory == LayerMemory::state) to.state.list_state(l);
  if (memory == LayerMemory::stream)
    for (View<T, 2>& gradient : to.stream) add_stream(l, gradient, "gradient of the residual", l.W);
  return l.list;
}

#define FORGE_INSTANTIATE(T)                                                                                \
  template BufferList buffers_in(LayerMemory, const BufferContext&, const StageContent&, const StageLayer&, \
                                 LayerBuffers<T>&);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

std::size_t bytes_in(LayerMemory memory, const BufferContext& c, const StageContent& stage, const StageLayer& layer) {
  return with_compute_type(c.precision, [&](auto type) {
    LayerBuffers<decltype(type)> members;
    return aligned_bytes(buffers_in(memory, c, stage, layer, members));
  });
}

std::size_t scratch_bytes(const BufferContext& run, const StageLayer& layer, Pass pass, bool recompute) {
  const OfLayer own(run, layer);
  const BufferContext& c = *own;
  return with_compute_type(c.precision, [&](auto type) {
    return visit(layer, [&](auto kind) { return kind.template scratch<decltype(type)>(c, layer, pass, recompute); });
  });
}

Segments segments_of(const BufferContext& c, int cp_rank, const StageLayer& layer, Pass pass, bool recompute) {
  Segments list = OfLayer(c, layer).segments(cp_rank);
  visit(layer, [&](auto kind) { kind.segments(list, layer, pass, recompute); });
  return list;
}

}  // namespace forge
