#include "unit_sizes.hpp"

#include <algorithm>

#include "config/fp8_recipe.hpp"

namespace forge::test {

namespace {

std::int64_t up_to_multiple(std::int64_t n, std::int64_t of) {
  return (n + of - 1) / of * of;
}

// A unit, stretch by stretch: what tp splits, what it replicates, vectors that it splits.
class Builder {
 public:
  Builder(UnitSize::Kind kind, bool matrices = true) : unit_{kind} { unit_.matrices = matrices; }

  std::int64_t split(std::int64_t elements) {
    if (elements > 0 && replicates_ && !ends_) {
      unit_.replicated_end = up_to_multiple(unit_.elements, 64);
      ends_ = true;
    }
    return add(elements);
  }
  void replicated(std::int64_t elements) {
    const std::int64_t begin = add(elements);
    if (elements > 0 && !replicates_) {
      unit_.replicated_begin = begin;
      replicates_ = true;
    }
  }
  void copied(std::int64_t begin, std::int64_t elements) {
    unit_.copied_begin = begin;
    unit_.copied_end = begin + elements;
  }
  UnitSize finish(std::int64_t shards) {
    unit_.elements = up_to_multiple(unit_.elements, 64 * shards);
    if (!ends_) unit_.replicated_end = unit_.elements;
    if (!replicates_) unit_.replicated_begin = unit_.replicated_end = unit_.elements;
    return unit_;
  }

 private:
  std::int64_t add(std::int64_t elements) {
    if (elements == 0) return unit_.elements;
    const std::int64_t begin = up_to_multiple(unit_.elements, 64);
    unit_.elements = begin + elements;
    return begin;
  }

  UnitSize unit_;
  bool replicates_ = false, ends_ = false;
};

class Sizes {
 public:
  Sizes(const Deck& deck, std::int64_t expert_shards)
      : d_(deck),
        m_(deck.model),
        tp_(deck.mesh.tp),
        shards_(deck.mesh.dp_shard * deck.mesh.cp),
        expert_shards_(expert_shards) {}

  UnitSize table(UnitSize::Kind kind) const {
    Builder unit(kind);
    unit.split(up_to_multiple(m_.vocabulary, tp_) / tp_ * m_.width);
    return unit.finish(shards_);
  }
  UnitSize positions() const {
    Builder unit(UnitSize::Kind::position_table);
    unit.replicated(m_.max_positions * m_.width);
    return unit.finish(shards_);
  }
  UnitSize norm() const {
    Builder unit(UnitSize::Kind::norm, false);
    for (std::int64_t i = 0; i < vectors_of_norm(); ++i) unit.replicated(m_.width);
    return unit.finish(shards_);
  }

  UnitSize block(std::int64_t layer) const {
    const bool moe = has_experts(m_, layer), gated = is_gated(m_.activation);
    const std::int64_t up = (gated ? 2 : 1) * (moe ? m_.shared_expert_ffn : m_.ffn) / tp_;
    const std::int64_t biases = moe ? 0 : m_.mlp_bias;
    Builder unit(UnitSize::Kind::block);
    attention_matrices(unit);
    unit.split(up * m_.width);
    unit.split((moe ? m_.shared_expert_ffn : m_.ffn) / tp_ * m_.width);
    if (m_.attention == AttentionKind::mla) {
      unit.replicated(m_.q_lora * m_.width);
      unit.replicated((m_.kv_lora + m_.rope_dim) * m_.width);
    }
    if (moe) unit.replicated(m_.experts * m_.width);
    unit.replicated(m_.attention_out_bias * m_.width);
    unit.replicated(biases * m_.width);
    const int norms = m_.norm_placement == NormPlacement::both ? 4 : 2;
    for (std::int64_t i = 0; i < norms * vectors_of_norm(); ++i) unit.replicated(m_.width);
    for (int i = 0; i < 2; ++i) unit.replicated(m_.qk_norm * !m_.qk_norm_whole * m_.head_dim);
    if (m_.attention == AttentionKind::mla) {
      unit.replicated(m_.q_lora);
      unit.replicated(m_.kv_lora);
    }
    if (moe) unit.replicated(m_.shared_expert_gate * m_.width);
    if (moe) unit.replicated(m_.router_logit_bias * m_.experts);
    unit.split(m_.attention_sinks * m_.heads / tp_);
    unit.split(m_.qkv_bias * (m_.heads / tp_ + 2 * key_heads()) * m_.head_dim);
    for (const std::int64_t heads : {m_.heads / tp_, key_heads()})
      unit.split(m_.qk_norm * m_.qk_norm_whole * heads * m_.head_dim);
    unit.split(biases * up);
    return unit.finish(shards_);
  }

  UnitSize experts() const {
    Builder unit(UnitSize::Kind::experts);
    const std::int64_t matrix = m_.experts / d_.mesh.ep * m_.expert_ffn / d_.mesh.etp * m_.width;
    unit.split(2 * matrix);
    unit.split(matrix);
    const std::int64_t etp = d_.mesh.etp, biased = m_.expert_bias * m_.experts / d_.mesh.ep;
    unit.split(biased * 2 * m_.expert_ffn / etp);
    unit.split(biased * up_to_multiple(m_.width, etp) / etp);
    return unit.finish(expert_shards_);
  }

 private:
  std::int64_t vectors_of_norm() const { return m_.norm == NormKind::layernorm ? 2 : 1; }
  std::int64_t key_heads() const { return std::max<std::int64_t>(m_.kv_heads / tp_, 1); }

  void attention_matrices(Builder& unit) const {
    const std::int64_t heads = m_.heads / tp_;
    if (m_.attention == AttentionKind::mla) {
      unit.split(heads * (m_.nope_dim + m_.rope_dim) * (m_.q_lora > 0 ? m_.q_lora : m_.width));
      unit.split(heads * (m_.nope_dim + m_.value_dim) * m_.kv_lora);
      unit.split(heads * m_.value_dim * m_.width);
      return;
    }
    const std::int64_t queries = heads * m_.head_dim * m_.width, keys = 2 * key_heads() * m_.head_dim * m_.width;
    const std::int64_t begin = unit.split(queries + keys);
    if (tp_ > m_.kv_heads) unit.copied(begin + queries, keys);
    unit.split(queries);
  }

  const Deck& d_;
  const ModelDeck& m_;
  std::int64_t tp_, shards_, expert_shards_;
};

}  // namespace

bool has_experts(const ModelDeck& model, std::int64_t layer) {
  const auto& dense = model.dense_layers;
  return model.experts > 0 && layer >= model.first_dense_layers && (layer + 1) % model.moe_every == 0 &&
         std::find(dense.begin(), dense.end(), layer) == dense.end();
}

std::vector<UnitSize> unit_sizes(const Deck& deck, const std::vector<Held>& held, std::int64_t expert_shards) {
  const Sizes sizes(deck, expert_shards);
  const bool tied = deck.model.tied_embeddings;
  bool embedding = false, head = false;
  for (const Held& h : held) embedding = embedding || h.embedding, head = head || h.head;
  std::vector<UnitSize> units;
  if (embedding || (head && tied)) units.push_back(sizes.table(UnitSize::Kind::token_table));
  if (embedding && deck.model.positions == PositionKind::learned) units.push_back(sizes.positions());
  for (const Held& h : held)
    for (std::int64_t layer = h.first_layer; layer < h.end_layer; ++layer) {
      units.push_back(sizes.block(layer));
      if (has_experts(deck.model, layer)) units.push_back(sizes.experts());
    }
  if (head && !tied) units.push_back(sizes.table(UnitSize::Kind::output));
  if (head) units.push_back(sizes.norm());
  return units;
}

std::int64_t weights_with_one_scale(const Deck& deck, const std::vector<Held>& held) {
  const ModelDeck& m = deck.model;
  const TrainDeck& t = deck.train;
  if (t.precision != PrecisionName::fp8 || t.fp8_recipe != Fp8Recipe::current) return 0;
  const std::int64_t first = t.fp8_first_layers_bf16, end = m.layers - t.fp8_last_layers_bf16;
  std::int64_t weights = 0;
  for (const Held& h : held)
    for (std::int64_t layer = std::max(h.first_layer, first); layer < std::min(h.end_layer, end); ++layer) {
      weights += m.attention != AttentionKind::mla ? 2 : m.q_lora > 0 ? 5 : 4;
      weights += !has_experts(m, layer) || m.shared_expert_ffn > 0 ? 2 : 0;
    }
  return weights;
}

}  // namespace forge::test
