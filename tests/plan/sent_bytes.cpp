#include "sent_bytes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <sstream>

#include "config/fp8_recipe.hpp"
#include "config/optimizer_table.hpp"
#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "rank_places.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"
#include "sent_group.hpp"
#include "unit_sizes.hpp"

namespace forge::test {

namespace {

// FP8's rounded numbers travel in nothing but their carrier; the formula has no amaxes that tp and cp send.
bool carries_bf16(const TrainDeck& t) {
  return t.precision == PrecisionName::bf16 || (t.precision == PrecisionName::fp8 && t.fp8_carrier == Fp8Carrier::bf16);
}
std::int64_t bytes_of(bool wide, bool narrow) {
  return wide ? 8 : narrow ? 2 : 4;
}

// A rank's step, group by group, in the order of docs/notes/bytes.md.
class Step {
 public:
  Step(const Deck& deck, int rank)
      : d(deck),
        m(deck.model),
        rank_(rank),
        places_(deck.mesh),
        M(d.train.global_batch_sequences / (d.train.microbatch_sequences * d.mesh.dp_replicate * d.mesh.dp_shard)),
        R(d.train.microbatch_sequences * d.train.sequence_tokens / d.mesh.cp),
        S(R / d.mesh.tp),
        C(m.width),
        e(bytes_of(d.train.precision == PrecisionName::fp64, carries_bf16(d.train))),
        a(bytes_of(d.train.precision == PrecisionName::fp64, false)) {
    if (m.mtp_depth > 0 || !is_even()) throw Error("no formula for this deck");
    if (m.full_attention_interval > 0) throw Error("no formula for gated DeltaNet");
    if (d.train.precision == PrecisionName::fp8 && d.mesh.tp * d.mesh.cp > 1) throw Error("no formula for amaxes");
    if (d.preference.on() && d.mesh.cp > 1) throw Error("no formula for sums of texts");
    if (m.adapter.on() || !d.train.frozen.empty()) throw Error("no formula for what is frozen");
    if (row_of(d.optimizer.name).whole_matrices()) throw Error("no formula for matrices on their way to owners");
    if (m.qkv_bias && d.mesh.tp > m.kv_heads) throw Error("no formula for biases of copied heads");
    find_stages();
    units_ = unit_sizes(d, held_, places_.expert_shards);
  }

  std::vector<GroupBytes> groups() {
    using P = Places;
    std::vector<GroupBytes> all;
    const auto add = [&](const SentGroup& group) { all.push_back(group.bytes()); };
    add(scalars());
    add(tensor());
    add(tensor_behind());
    context(all);
    add(pipeline());
    SentGroup matrices("matrices", places_.group(rank_, {P::shard, P::cp, P::tp}));
    matrices.all_reduce(weights_with_one_scale(d, held_), 4);
    add(matrices);
    gradients(all, false, places_.group(rank_, {P::replicate, P::shard, P::cp}),
              places_.group(rank_, {P::shard, P::cp}), places_.group(rank_, {P::replicate}));
    if (m.experts == 0) return all;
    add(exchange(SentGroup("ep", places_.group(rank_, {P::ep})), d.mesh.etp, d.mesh.ep));
    add(exchange(SentGroup("etp", places_.group(rank_, {P::etp})), 1, 1));
    gradients(all, true, places_.group(rank_, {P::slow, P::fast}), places_.group(rank_, {P::fast}),
              places_.group(rank_, {P::slow}));
    return all;
  }

 private:
  // ---- pipeline
  std::int64_t stage_count() const {
    return d.mesh.pp * (d.schedule.name == ScheduleName::zb_v ? 2 : d.schedule.virtual_stages);
  }
  std::int64_t rank_of_stage(std::int64_t stage) const {
    const std::int64_t pp = d.mesh.pp;
    if (d.schedule.name == ScheduleName::zb_v) return stage < pp ? stage : 2 * pp - 1 - stage;
    return stage % pp;
  }
  // Layers of stage s of an even split: the first stages have one more where they don't divide.
  std::int64_t even_layers(std::int64_t s) const { return m.layers / stage_count() + (s < m.layers % stage_count()); }
  // An even split, or one that is written out ("Et|t||L") and even.
  bool is_even() const {
    if (d.schedule.split == "even") return true;
    std::stringstream stages(d.schedule.split);
    std::int64_t s = 0;
    for (std::string stage; std::getline(stages, stage, '|'); ++s)
      if (std::count(stage.begin(), stage.end(), 't') != even_layers(s)) return false;
    return s == stage_count();
  }
  void find_stages() {
    const std::int64_t count = stage_count(), here = places_.dense(rank_, Places::pp);
    std::int64_t first = 0;
    for (std::int64_t s = 0; s < count; ++s) {
      const std::int64_t end = first + even_layers(s);
      if (rank_of_stage(s) == here) {
        held_.push_back({first, end, s == 0, s == count - 1});
        stages_.push_back(s);
      }
      first = end;
    }
  }
  // S rows of the residual stream to each neighbour on another rank: activations forward, their gradients back.
  SentGroup pipeline() const {
    SentGroup pp("pp", places_.group(rank_, {Places::pp}));
    for (const std::int64_t s : stages_)
      for (const std::int64_t other : {s - 1, s + 1})
        if (other >= 0 && other < stage_count() && rank_of_stage(other) != rank_of_stage(s)) pp.send(S * C, e, M);
    return pp;
  }

  // ---- rows within a stage
  std::int64_t here(bool experts) const {
    std::int64_t n = 0;
    for (const Held& h : held_)
      for (std::int64_t layer = h.first_layer; layer < h.end_layer; ++layer) n += has_experts(m, layer) == experts;
    return n;
  }
  // Of these, layers that backward recomputes whole: all, or the first ones of each stage.
  bool is_full(const Held& h, std::int64_t layer) const {
    return d.train.recompute == Recompute::full || layer - h.first_layer < d.train.recompute_full_layers;
  }
  std::int64_t full(bool experts) const {
    std::int64_t n = 0;
    for (const Held& h : held_)
      for (std::int64_t layer = h.first_layer; layer < h.end_layer; ++layer)
        n += has_experts(m, layer) == experts && is_full(h, layer);
    return n;
  }
  // Columns that attention's first product reads: the latents, with the residual stream where queries come from it.
  std::int64_t attention_inputs() const {
    if (m.attention != AttentionKind::mla) return C;
    return (m.q_lora > 0 ? m.q_lora : C) + m.kv_lora + m.rope_dim;
  }
  SentGroup tensor() const {
    SentGroup tp("tp", places_.group(rank_, {Places::tp}));
    const std::int64_t layers = here(false) + here(true), again = full(false) + full(true);
    const bool shared = m.shared_expert_ffn > 0;
    const std::int64_t mlps = here(false) + shared * here(true), mlps_again = full(false) + shared * full(true);
    const std::int64_t inputs = d.train.recompute.has(Recompute::up_projections) ? layers : again;
    const Joined behind = joined();
    // Attention: its input gathered in F, for W and when recomputed; its output's gradient gathered.
    tp.all_gather(S * attention_inputs(), e, M * (2 * layers + inputs) - behind.layers);
    tp.all_gather(S * C, e, M * layers);
    tp.messages(S * C, e, M * (layers + again));
    tp.messages(S * attention_inputs(), e, M * layers - behind.layers);
    // Feed-forward: the same; its output is only recomputed where a norm behind it or a gate reads it.
    const bool norms_behind = m.norm_placement != NormPlacement::before;
    tp.all_gather(S * C, e, M * (3 * mlps + mlps_again) - behind.mlps);
    tp.messages(S * C, e, M * (2 * mlps + norms_behind * mlps_again) - behind.mlps);
    // QK-norm of all heads together adds up two numbers a row, of queries and of keys, forward and backward.
    if (m.qk_norm_whole) tp.all_reduce(2 * R, a, M * (2 * layers + again));
    if (m.shared_expert_gate) tp.messages(S * C, e, M * full(true));
    for (const Held& h : held_) {
      if (h.embedding) tp.messages(S * C, e, M), tp.all_gather(S * C, e, M);
      if (h.head) tp.all_gather(S * C, e, M), tp.messages(S * C, e, M), tp.all_gather(3 * R, a, M);
    }
    balance(tp);
    return tp;
  }
  // Where W follows B at once: what W reads is gathered, unless recomputation left it, and what B sums over tp sent,
  // behind products.
  SentGroup tensor_behind() const {
    SentGroup tp("tp_behind", places_.group(rank_, {Places::tp}));
    const Joined behind = joined();
    tp.all_gather(S * attention_inputs(), e, behind.layers - behind.full_layers);
    tp.messages(S * attention_inputs(), e, behind.layers);
    tp.all_gather(S * C, e, behind.mlps - behind.full_mlps);
    tp.messages(S * C, e, behind.mlps);
    return tp;
  }
  // Layers of all microbatches whose W follows B at once, those of them with a feed-forward network of all rows, and
  // those of both that are recomputed whole.
  struct Joined {
    std::int64_t layers = 0, mlps = 0, full_layers = 0, full_mlps = 0;
  };
  Joined joined() const {
    const Schedule schedule = lower(schedule_of(d, static_cast<int>(d.mesh.pp), static_cast<int>(M)));
    Joined sum;
    for (const Action& action : schedule.actions[static_cast<std::size_t>(places_.dense(rank_, Places::pp))]) {
      if (action.op != Op::backward) continue;
      const Held& held = held_[static_cast<std::size_t>(action.chunk)];
      for (std::int64_t layer = held.first_layer; layer < held.end_layer; ++layer) {
        const bool mlp = !has_experts(m, layer) || m.shared_expert_ffn > 0, again = is_full(held, layer);
        sum.layers += 1, sum.mlps += mlp, sum.full_layers += again, sum.full_mlps += mlp && again;
      }
    }
    return sum;
  }
  // Sums of the auxiliary loss: two numbers an expert, and one, in fp64.
  void balance(SentGroup& group) const {
    if (m.auxiliary_loss_coefficient == 0) return;
    const std::int64_t scopes = m.auxiliary_loss_scope == AuxiliaryScope::sequence ? d.train.microbatch_sequences : 1;
    group.all_reduce(scopes * (2 * m.experts + 1), 8, M * (here(true) + full(true)));
  }

  // Keys of `rows` rows and k heads of P columns.
  void ring(SentGroup& group, std::int64_t rows, std::int64_t k, std::int64_t P, std::int64_t passes,
            std::int64_t backwards) const {
    group.messages(rows * k * P, e, passes);
    group.messages(rows * k * P, a, backwards);
  }
  // h heads of D columns, and the k of keys that they read, from each rank to each.
  void heads(SentGroup& group, std::int64_t h, std::int64_t k, std::int64_t D, std::int64_t Dv, std::int64_t forwards,
             std::int64_t backwards) const {
    group.messages(R * (h * D + k * (D + Dv)), e, forwards);
    group.messages(R * h * Dv, e, forwards);
    group.messages(R * (h + k) * (D + Dv), e, backwards);
    group.messages(R * h, a, backwards);
    group.messages(R * (h * D + k * (D + Dv)), e, backwards);
  }
  // cp ranks of this one's group for which f(coordinate) is as its own.
  template <class F>
  std::vector<int> context_ranks(F f) const {
    std::vector<int> ranks;
    for (const int other : places_.group(rank_, {Places::cp}))
      if (f(places_.dense(other, Places::cp)) == f(places_.dense(rank_, Places::cp))) ranks.push_back(other);
    return ranks;
  }

  void context(std::vector<GroupBytes>& all) const {
    SentGroup cp("cp", places_.group(rank_, {Places::cp}));
    const bool mla = m.attention == AttentionKind::mla;
    const std::int64_t H = m.heads / d.mesh.tp, K = mla ? H : std::max<std::int64_t>(m.kv_heads / d.mesh.tp, 1);
    const std::int64_t D = mla ? m.nope_dim + m.rope_dim : m.head_dim, Dv = mla ? m.value_dim : m.head_dim, P = D + Dv;
    const std::int64_t blocks = M * (here(false) + here(true)), forwards = blocks + M * (full(false) + full(true));
    const auto keys = [&](std::int64_t h) { return h / std::gcd(h, H / K); };
    switch (d.mesh.cp_method) {
      case CpMethod::ring:
        ring(cp, R, K, P, forwards + blocks, blocks);
        break;
      case CpMethod::all_gather:
        cp.all_gather(R * K * P, e, forwards + blocks);
        cp.messages(R * K * P, a, blocks);
        break;
      case CpMethod::all_to_all:
        heads(cp, H / d.mesh.cp, keys(H / d.mesh.cp), D, Dv, forwards, blocks);
        break;
      case CpMethod::two_level: {
        if (d.mesh.cp == 1) break;
        const std::int64_t n = d.mesh.cp_inner, h = H / n;
        SentGroup inner("cp_inner", context_ranks([&](std::int64_t c) { return c / n; }));
        SentGroup outer("cp_outer", context_ranks([&](std::int64_t c) { return c % n; }));
        heads(inner, h, keys(h), D, Dv, forwards, blocks);
        ring(outer, R * n, keys(h), P, forwards + blocks, blocks);
        all.push_back(inner.bytes());
        all.push_back(outer.bytes());
      }
    }
    balance(cp);
    all.push_back(cp.bytes());
  }

  // ---- experts
  // `factor`: what etp neighbours have gathered before; an assignment's rows are cut `parts` ways.
  SentGroup exchange(SentGroup group, std::int64_t factor, std::int64_t parts) const {
    const std::int64_t E = m.experts, k = m.experts_per_token, layers = M * here(true), again = M * full(true);
    // A row on its way to experts: C numbers, or C codes and scales of four bytes.
    const std::int64_t scales = d.train.fp8_recipe == Fp8Recipe::block ? (C + 127) / 128 : 1;
    const std::int64_t columns = d.train.fp8_dispatch ? C + 4 * scales : C, size = d.train.fp8_dispatch ? 1 : e;
    if (m.dispatch == DispatchMethod::all_gather) {
      // Rows and weights forward, choices with them; both back: gradients the other way round.
      group.all_gather(factor * S * k, 4, layers + again);
      group.all_gather(factor * S * columns, size, 2 * layers + again);
      group.all_gather(factor * S * k, a, layers + again);
      group.messages(factor * S * C, e, layers * 2);
      group.messages(factor * S * k, a, layers);
      return group;
    }
    const std::int64_t assignments = S * k;
    group.messages(assignments * columns / parts, size, 2 * layers + again);
    group.messages(assignments * C / parts, e, layers * 2);
    group.messages(assignments / parts, a, 2 * layers + again);
    group.all_gather(factor * E, 8, layers + again);
    return group;
  }

  // ---- parameters and their gradients
  static bool is_experts(const UnitSize& unit) { return unit.kind == UnitSize::Kind::experts; }
  void gradients(std::vector<GroupBytes>& all, bool experts, std::vector<int> same, std::vector<int> shards,
                 std::vector<int> replicas) const {
    const std::string of = experts ? "expert_" : "";
    const auto [near, rail] = shard_levels(d, rank_, shards);
    SentGroup sums(of + "gradients", std::move(same)),
        parts(of + "gradient_shards", rail.size() > 1 ? std::vector<int>{rank_} : shards),
        in_node(of + "gradient_node", near), between(of + "gradient_rail", rail),
        copies(of + "gradient_replicas", std::move(replicas)), gathered(of + "parameter_shards", shards);
    const std::int64_t Z = gathered.n(), stage = d.train.zero_stage;
    const bool each = d.train.accumulate == Accumulation::sharded;
    for (const UnitSize& unit : units_) {
      if (is_experts(unit) != experts) continue;
      if (stage == 0) sums.all_reduce(unit.elements, a);
      if (stage == 0) continue;
      const std::int64_t times = each && unit.matrices ? M * uses(unit) : 1;
      parts.messages(unit.elements / Z, a, times);
      in_node.messages(unit.elements / in_node.n(), a, times);
      between.messages(unit.elements / Z, e, times);
      copies.all_reduce(unit.elements / Z, a);
      if (stage < 3 || d.train.gather == GatherPolicy::step) gathered.all_gather(unit.elements / Z, e);
    }
    if (stage == 3 && d.train.gather == GatherPolicy::microbatch && Z > 1)
      gathered.all_gather(gathered_elements(experts) / Z, e);
    for (const SentGroup* group : {&sums, &parts, &in_node, &between, &copies}) all.push_back(group->bytes());
    if (!experts) replicated(all);
    all.push_back(gathered.bytes());
  }
  std::int64_t uses(const UnitSize& unit) const {
    std::int64_t n = 0;
    for (const Held& h : held_) n += h.embedding + (h.head && m.tied_embeddings);
    return unit.kind == UnitSize::Kind::token_table ? n : 1;
  }
  // ZeRO 3 on one stage: every unit in each forward, blocks and norm in each backward, but for what still stands in one
  // of the two places: norm and last block where a pass turns, the first two where the next begins; of experts, which
  // have two places of their own, two layers either way.
  std::int64_t gathered_elements(bool experts) const {
    if (d.mesh.pp > 1 || m.tied_embeddings || m.positions == PositionKind::learned || stage_count() > 1)
      throw Error("no formula for gathers of this deck");
    std::int64_t forward = 0, backward = 0;
    std::vector<std::int64_t> layers;
    std::int64_t norm = 0;
    for (const UnitSize& unit : units_) {
      if (is_experts(unit) != experts) continue;
      forward += unit.elements;
      if (is_experts(unit) || unit.kind == UnitSize::Kind::block) layers.push_back(unit.elements);
      if (unit.kind == UnitSize::Kind::norm) norm = unit.elements;
    }
    if (layers.size() < 2) throw Error("no formula for gathers of one layer");
    backward = std::accumulate(layers.begin(), layers.end(), norm);
    const std::int64_t turn = layers.back() + (experts ? layers[layers.size() - 2] : norm),
                       begin = layers[0] + layers[1];
    return M * (forward + backward - turn) - (M - 1) * begin;
  }

  // The rank's part of a stretch of a unit.
  std::int64_t part(const UnitSize& unit, std::int64_t begin, std::int64_t end) const {
    if (d.train.zero_stage == 0) return end - begin;
    const std::int64_t Z = d.mesh.dp_shard * d.mesh.cp, size = unit.elements / Z;
    const std::int64_t at = (places_.dense(rank_, Places::shard) * d.mesh.cp + places_.dense(rank_, Places::cp)) * size;
    return std::max<std::int64_t>(0, std::min(end, at + size) - std::max(begin, at));
  }
  // What tp ranks hold alike, key heads that neighbours share, and a table on two stages.
  void replicated(std::vector<GroupBytes>& all) const {
    const std::int64_t copies =
        d.mesh.tp > m.kv_heads && m.attention != AttentionKind::mla ? d.mesh.tp / m.kv_heads : 1;
    std::vector<int> neighbours, stages;
    for (const int other : places_.group(rank_, {Places::tp}))
      if (places_.dense(other, Places::tp) / copies == places_.dense(rank_, Places::tp) / copies)
        neighbours.push_back(other);
    for (const int other : places_.group(rank_, {Places::pp}))
      for (const std::int64_t stage : {std::int64_t{0}, stage_count() - 1})
        if (rank_of_stage(stage) == places_.dense(other, Places::pp) && (stages.empty() || stages.back() != other))
          stages.push_back(other);
    const bool holds = std::find(stages.begin(), stages.end(), rank_) != stages.end();
    if (!m.tied_embeddings || !holds) stages = {rank_};
    SentGroup tp("gradient_tp", places_.group(rank_, {Places::tp})), heads("gradient_copies", neighbours),
        tied("gradient_tied", stages);
    for (const UnitSize& unit : units_) {
      if (is_experts(unit)) continue;
      tp.all_reduce(part(unit, unit.replicated_begin, unit.replicated_end), a);
      heads.all_reduce(part(unit, unit.copied_begin, unit.copied_end), a);
      if (unit.kind == UnitSize::Kind::token_table) tied.all_reduce(part(unit, 0, unit.elements), a);
    }
    for (const SentGroup* group : {&tp, &heads, &tied}) all.push_back(group->bytes());
  }

  // Loss, z and squared norm; assignments of each expert and three sums of each layer.
  SentGroup scalars() const {
    std::vector<int> world(static_cast<std::size_t>(places_.world()));
    std::iota(world.begin(), world.end(), 0);
    SentGroup group("scalars", world);
    group.all_reduce(d.preference.on() ? 5 : 3, 8);
    if (m.experts > 0) group.all_reduce(m.layers * (m.experts + 3), 8);
    return group;
  }

  const Deck& d;
  const ModelDeck& m;
  int rank_;
  Places places_;
  std::int64_t M, R, S, C, e, a;
  std::vector<Held> held_;
  std::vector<std::int64_t> stages_;
  std::vector<UnitSize> units_;
};

}  // namespace

std::vector<GroupBytes> sent_in_step(const Deck& deck, int rank) {
  return Step(deck, rank).groups();
}

}  // namespace forge::test
