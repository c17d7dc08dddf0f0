#include "plan/traffic.hpp"

#include <algorithm>

#include "layout/chunk_units.hpp"
#include "model/context_buffers.hpp"
#include "model/moe_buffers.hpp"
#include "schedule/interpret.hpp"

namespace forge {

namespace {

// Calls of one group.
class Counter {
 public:
  explicit Counter(int size) : size_(size) {}

  // As Communicator counts: `count` is what the call takes.
  void call(Collective collective, std::int64_t count, DType type, std::int64_t times = 1) {
    if (size_ == 1) return;
    for (std::int64_t i = 0; i < times; ++i)
      traffic.add(collective, sent_elements(collective, count, size_) * static_cast<std::int64_t>(size_of(type)));
  }
  void add(const Traffic& more) {
    if (size_ == 1) return;
    for (int c = 0; c < collective_count; ++c) {
      traffic.calls[static_cast<std::size_t>(c)] += more.calls[static_cast<std::size_t>(c)];
      traffic.bytes[static_cast<std::size_t>(c)] += more.bytes[static_cast<std::size_t>(c)];
    }
  }
  Traffic traffic;

 private:
  int size_;
};

// Walks the rank's list as the executor does, and counts what tp, cp, pp and the gathers of ZeRO-3 send.
class Walk {
 public:
  Walk(const BufferContext& c, const MeshShape& mesh, const RankShare& share, const Schedule& schedule)
      : tp(mesh.tp),
        cp(mesh.cp),
        pp(mesh.pp),
        ep(mesh.ep),
        etp(mesh.etp),
        parameters{Counter(share.zero[0].shards), Counter(share.zero[1].shards)},
        c_(c),
        share_(share),
        list_(schedule.actions[static_cast<std::size_t>(share.pp_rank)]) {
    for (std::size_t k = 0; k < pools_.size(); ++k)
      pools_[k] = GatherPool(parameter_pool(share.units, static_cast<PoolClass>(k), share.zero).buffers);
    for (const StageContent& chunk : share.chunks)
      units_.push_back(chunk_units(share.units, c.spec.options.tied_embeddings, chunk));
  }

  Counter tp, cp, pp, ep, etp;
  std::array<Counter, unit_classes> parameters;  // by class of units

  void forward(const Action& a) {
    const StageContent& chunk = content(a);
    const ChunkUnits& u = units(a);
    at_ = 0;
    if (chunk.embedding) {
      visit(u.forward, u.table);
      if (u.positions != ChunkUnits::none) visit(u.forward, u.positions);
      drop(u.table);
      if (u.positions != ChunkUnits::none) drop(u.positions);
      rows(Collective::reduce_scatter);
    }
    const auto layers = static_cast<std::size_t>(chunk.layers);
    for (std::size_t l = 0; l < layers; ++l) {
      use_layer(u.forward, u, l);
      forward_of_layer(a, l, true);
      drop_layer(u, l);
    }
    if (chunk.head) {
      visit(u.forward, u.output);
      for (int state = 0; state < (chunk.final_norm() ? 1 : chunk.streams_in); ++state) head();
    }
    if (chunk.final_norm()) visit(u.forward, u.norm);
    if (chunk.head) drop(u.output);
    if (chunk.final_norm()) drop(u.norm);
    for (std::size_t l = layers; l < u.blocks.size(); ++l) {
      visit(u.forward, u.shared_table);
      rows(Collective::reduce_scatter);
      drop(u.shared_table);
      use_layer(u.forward, u, l);
      forward_of_layer(a, l, true);
      if (chunk.head) {
        visit(u.forward, u.output);
        head();
        drop(u.output);
      }
      drop_layer(u, l);
    }
  }

  void backward(const Action& a) {
    backward_input(a);
    backward_weight(a);
  }

  void backward_input(const Action& a) {
    const ChunkUnits& u = units(a);
    const auto layers = static_cast<std::size_t>(content(a).layers);
    at_ = 0;
    const auto final_norm = [&] {
      visit(u.backward, u.norm);
      drop(u.norm);
    };
    for (std::size_t l = u.blocks.size(); l-- > 0;) {
      if (content(a).final_norm() && l + 1 == layers) final_norm();
      use_layer(u.backward, u, l);
      if (c_.recompute == Recompute::full) forward_of_layer(a, l, false);
      rows(Collective::all_gather, 1 + products(a, l));
      attention_inputs(Collective::reduce_scatter);
      rows(Collective::reduce_scatter, products(a, l));
      cp.add(context_traffic_backward(c_));
      if (is_moe(a, l)) {
        rows_of_pairs(Way::out);
        rows_of_pairs(Way::back);
        pairs(Way::back, 1, c_.precision.accumulate);
      }
      if (l >= layers) rows(Collective::all_gather);  // the embedding's gradient
      drop_layer(u, l);
    }
    if (content(a).final_norm() && layers == 0) final_norm();
  }

  void backward_weight(const Action& a) {
    for (int l = 0; l < content(a).layers + content(a).mtp_layers; ++l) {
      attention_inputs(Collective::all_gather);
      rows(Collective::all_gather, products(a, static_cast<std::size_t>(l)));
    }
    if (content(a).embedding) rows(Collective::all_gather);
  }

  void post_send(const Action& a) {
    const int streams = is_forward_transfer(a.op) ? content(a).streams_out() : content(a).streams_in;
    pp.call(Collective::send, streams * c_.stream_rows() * c_.spec.C(), c_.precision.compute);
  }
  void gather_parameters(const Action& a) {
    for (const Action* next = &a + 1; next != list_.data() + list_.size(); ++next) {
      if (next->chunk != a.chunk || !(next->op == Op::forward || computes_input_gradient(next->op))) continue;
      const auto& order = next->op == Op::forward ? units(a).forward : units(a).backward;
      if (!order.empty()) prefetch(order.front());
      return;
    }
  }

  void recompute(const Action&) {}
  void begin_group(const Action&) {}
  void end_group(const Action&) {}
  void wait_send(const Action&) {}
  void post_recv(const Action&) {}
  void wait_recv(const Action&) {}
  void hand_over(const Action&) {}
  void wait_parameters(const Action&) {}
  void release_parameters(const Action&) {}
  void reduce_gradients(const Action&) {}
  void wait_gradients(const Action&) {}

  // Gathers of the whole unit into its own place.
  void gather_all() {
    for (std::size_t u = 0; u < share_.units.size(); ++u)
      if (zero(u).shards_state() && zero(u).keeps_whole()) gather(u);
  }

 private:
  const StageContent& content(const Action& a) const { return share_.chunks[static_cast<std::size_t>(a.chunk)]; }
  const ChunkUnits& units(const Action& a) const { return units_[static_cast<std::size_t>(a.chunk)]; }

  // Collectives on what attention's first gathered product reads.
  void attention_inputs(Collective collective, std::int64_t times = 1) {
    tp.call(collective, c_.stream_rows() * c_.spec.attention_input_columns(), c_.precision.compute, times);
  }
  // Collectives on the rows of the residual stream.
  void rows(Collective collective, std::int64_t times = 1) {
    tp.call(collective, c_.stream_rows() * c_.spec.C(), c_.precision.compute, times);
  }

  bool is_moe(const Action& a, std::size_t l) const { return c_.spec.is_moe(content(a).layer(static_cast<int>(l))); }
  // Logits of all rows, a chunk at a time, and their gradient.
  void head() {
    rows(Collective::all_gather);
    for (std::int64_t begin = 0; begin < c_.microbatch.rows(); begin += c_.head_chunk_rows)
      tp.call(Collective::all_gather, 3 * std::min(c_.head_chunk_rows, c_.microbatch.rows() - begin),
              c_.precision.accumulate);
    rows(Collective::reduce_scatter);
  }
  // Feed-forward products that tp splits: the experts' are not among them.
  int products(const Action& a, std::size_t l) const { return is_moe(a, l) && c_.spec.Fs() == 0 ? 0 : 1; }

  void use_layer(const std::vector<std::size_t>& order, const ChunkUnits& u, std::size_t l) {
    visit(order, u.blocks[l]);
    if (u.experts[l] != ChunkUnits::none) visit(order, u.experts[l]);
  }
  void drop_layer(const ChunkUnits& u, std::size_t l) {
    drop(u.blocks[l]);
    if (u.experts[l] != ChunkUnits::none) drop(u.experts[l]);
  }

  // `whole`: with the last products, which recomputation leaves out.
  void forward_of_layer(const Action& a, std::size_t l, bool whole) {
    attention_inputs(Collective::all_gather);
    rows(Collective::all_gather, products(a, l));
    rows(Collective::reduce_scatter,
         1 + (whole || (is_moe(a, l) && c_.spec.options.shared_expert_gate) ? products(a, l) : 0));
    cp.add(context_traffic_forward(c_));
    if (!is_moe(a, l)) return;
    router();
    const MoeShape m = moe_shape(c_);
    if (m.gathers) {
      gather_rows_of_group(m.chosen, DType::i32);
    } else if (!m.fixed) {
      etp.call(Collective::all_gather, m.experts, DType::i64);
      ep.call(Collective::all_gather, c_.etp * m.experts, DType::i64);
    }
    rows_of_pairs(Way::out);
    pairs(Way::out, 1, c_.precision.accumulate);
    if (whole) rows_of_pairs(Way::back);
  }

  void router() {
    const ModelDeck& o = c_.spec.options;
    const MoeShape m = moe_shape(c_);
    if (o.auxiliary_loss_coefficient > 0) {
      const std::int64_t table = balance_scopes(c_) * (2 * m.experts + 1);
      tp.call(Collective::all_reduce, table, DType::f64);
      cp.call(Collective::all_reduce, table, DType::f64);
    }
    if (o.capacity_factor == 0 || m.fixed) return;
    for (const DType type : {DType::i32, c_.precision.accumulate}) {
      tp.call(Collective::all_gather, m.rows * m.chosen, type);
      cp.call(Collective::all_gather, c_.tp * m.rows * m.chosen, type);
    }
  }

  // A round of dispatch: what static shapes send, and dropless dispatch where the router loads all experts alike.
  enum class Way { out, back };
  void rows_of_pairs(Way way) { pairs(way, c_.spec.C(), c_.precision.compute); }
  void pairs(Way way, std::int64_t columns, DType type) {
    if (moe_shape(c_).gathers) {
      const std::int64_t width = columns == 1 ? moe_shape(c_).chosen : columns;
      return way == Way::out ? gather_rows_of_group(width, type) : reduce_rows_of_group(width, type);
    }
    const std::int64_t elements = moe_shape(c_).places * columns;
    ep.call(Collective::all_to_all, elements / c_.ep, type);
    if (way == Way::out)
      etp.call(Collective::all_to_all, elements, type);
    else
      etp.call(Collective::send, elements, type, c_.etp - 1);
  }

  void gather_rows_of_group(std::int64_t columns, DType type) {
    etp.call(Collective::all_gather, c_.stream_rows() * columns, type);
    ep.call(Collective::all_gather, c_.etp * c_.stream_rows() * columns, type);
  }
  void reduce_rows_of_group(std::int64_t columns, DType type) {
    ep.call(Collective::reduce_scatter, c_.etp * c_.stream_rows() * columns, type);
    etp.call(Collective::reduce_scatter, c_.stream_rows() * columns, type);
  }

  const Zero& zero(std::size_t unit) const { return zero_of(share_.zero, share_.units[unit]); }
  std::size_t class_at(std::size_t unit) const { return static_cast<std::size_t>(class_of(share_.units[unit])); }
  bool is_pooled(std::size_t unit) const { return !zero(unit).keeps_whole(); }
  GatherPool& pool_at(std::size_t unit) { return pools_[static_cast<std::size_t>(pool_of(share_.units[unit]))]; }

  void gather(std::size_t unit) {
    parameters[class_at(unit)].call(Collective::all_gather, zero(unit).shard_of(share_.units[unit]).size(),
                                    c_.precision.compute);
  }
  void prefetch(std::size_t unit) {
    if (!is_pooled(unit) || pool_at(unit).find(unit) >= 0) return;
    if (pool_at(unit).take(unit) >= 0) gather(unit);
  }
  void visit(const std::vector<std::size_t>& order, std::size_t unit) {
    prefetch(unit);
    if (is_pooled(unit)) pool_at(unit).use(unit);
    const auto here = std::find(order.begin() + at_, order.end(), unit);
    if (here == order.end()) return;
    at_ = here + 1 - order.begin();
    if (here + 1 != order.end()) prefetch(here[1]);
  }
  void drop(std::size_t unit) {
    if (is_pooled(unit)) pool_at(unit).release(unit);
  }

  const BufferContext& c_;
  const RankShare& share_;
  const std::vector<Action>& list_;
  std::array<GatherPool, pool_classes> pools_;
  std::vector<ChunkUnits> units_;
  std::ptrdiff_t at_ = 0;  // behind the last unit used, in the order of a pass
};

// What GradientSync sends.
struct GradientTraffic {
  // all, shards and replicas by class of units.
  GradientTraffic(const BufferContext& c, const ModelSpec& whole, const MeshShape& mesh, const RankShare& share,
                  const Schedule& schedule)
      : all{Counter(mesh.data_parallel() * mesh.cp), Counter(mesh.edp)},
        shards{Counter(share.zero[0].shards), Counter(share.zero[1].shards)},
        replicas{Counter(mesh.dp_replicate), Counter(mesh.expert_replicas())},
        tp(mesh.tp),
        copies(kv_copies(whole, mesh.tp)),
        tied(share.table_stages) {
    const DType type = c.precision.accumulate;
    const auto uses = uses_of_units(share.units, c.spec.options.tied_embeddings, share.chunks, schedule.microbatches);
    for (std::size_t u = 0; u < share.units.size(); ++u) {
      const LocalUnit& unit = share.units[u];
      const auto k = static_cast<std::size_t>(class_of(unit));
      const Zero& zero = share.zero[k];
      const Range state = zero.state_of(unit);
      if (!zero.shards_state()) {
        all[k].call(Collective::all_reduce, unit.elements, type);
      } else {
        const bool each = zero.reduce_each && unit.vectors_begin > 0;
        shards[k].call(Collective::reduce_scatter, state.size(), type, each ? uses[u] : 1);
        replicas[k].call(Collective::all_reduce, state.size(), type);
      }
      if (class_of(unit) == UnitClass::experts) continue;
      reduce(tp, {unit.replicated_begin, unit.replicated_end}, state, type);
      for (const Range& copied : unit.copied) reduce(copies, copied, state, type);
      if (unit.kind == UnitKind::token_table) tied.call(Collective::all_reduce, state.size(), type);
    }
  }

  std::array<Counter, unit_classes> all, shards, replicas;
  Counter tp, copies, tied;

 private:
  static void reduce(Counter& group, const Range& part, const Range& state, DType type) {
    const Range here = intersection(part, state);
    if (!here.empty()) group.call(Collective::all_reduce, here.size(), type);
  }
};

}  // namespace

std::vector<std::pair<std::string, Traffic>> plan_traffic(const BufferContext& c, const ModelSpec& whole,
                                                          const MeshShape& mesh, const RankShare& share,
                                                          const Schedule& schedule) {
  Walk walk(c, mesh, share, schedule);
  execute_rank(schedule, share.pp_rank, walk);
  walk.gather_all();
  const GradientTraffic gradients(c, whole, mesh, share, schedule);
  Counter scalars(mesh.world());
  scalars.call(Collective::all_reduce, 3, DType::f64);
  if (whole.options.mtp_depth > 0) scalars.call(Collective::all_reduce, 2 * whole.options.mtp_depth, DType::f64);
  if (c.spec.E() > 0)
    scalars.call(Collective::all_reduce, (whole.L() + whole.options.mtp_depth) * (whole.E() + router_sum_count),
                 DType::f64);
  return {{"scalars", scalars.traffic},
          {"tp", walk.tp.traffic},
          {"cp", walk.cp.traffic},
          {"pp", walk.pp.traffic},
          {"gradients", gradients.all[0].traffic},
          {"gradient_shards", gradients.shards[0].traffic},
          {"gradient_replicas", gradients.replicas[0].traffic},
          {"gradient_tp", gradients.tp.traffic},
          {"gradient_copies", gradients.copies.traffic},
          {"gradient_tied", gradients.tied.traffic},
          {"parameter_shards", walk.parameters[0].traffic},
          {"ep", walk.ep.traffic},
          {"etp", walk.etp.traffic},
          {"expert_gradients", gradients.all[1].traffic},
          {"expert_gradient_shards", gradients.shards[1].traffic},
          {"expert_gradient_replicas", gradients.replicas[1].traffic},
          {"expert_parameter_shards", walk.parameters[1].traffic}};
}

}  // namespace forge
