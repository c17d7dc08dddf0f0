#include <algorithm>
#include <limits>
#include <utility>

#include "config/check_parts.hpp"
#include "config/family.hpp"
#include "config/keys.hpp"
#include "core/bytes.hpp"

namespace forge {

std::string activation_word(const ModelDeck& m) {
  Deck deck;
  deck.model = m;
  return value_text(*find_key("model", "activation"), deck);
}

namespace {

// Heads: how many, how wide.
void check_heads(ModelDeck& m, Report& report) {
  if (m.attention == AttentionKind::mla) return;  // check_latent_attention
  if (m.kv_heads == 0) m.kv_heads = m.heads;
  if (m.heads % m.kv_heads != 0)
    report.add(equation("model.heads", m.heads) + " is no multiple of " + equation("model.kv_heads", m.kv_heads) +
               "; nearest legal kv_heads: " + nearest_divisors(m.kv_heads, m.heads));
  if (m.head_dim == 0) {
    if (m.width % m.heads != 0) {
      report.add(equation("model.width", m.width) + " is no multiple of " + equation("model.heads", m.heads) +
                 ", and model.head_dim is not given; nearest legal width: " + nearest_multiples(m.width, m.heads));
      return;
    }
    m.head_dim = m.width / m.heads;
  }
  if (m.positions == PositionKind::rope && m.head_dim % 2 != 0)
    report.add(equation("model.head_dim", m.head_dim) + " is odd, but rope rotates pairs; nearest legal: " +
               nearest_multiples(m.head_dim, 2) + ", or model.positions: learned");
}

void check_qk_norm(const ModelDeck& m, Report& report) {
  if (m.qk_norm_whole && !m.qk_norm)
    report.add("model.qk_norm_whole = true has no effect without model.qk_norm; legal: false");
}

void check_activation(const ModelDeck& m, Report& report) {
  if (m.activation != Activation::clamped_swiglu)
    check_unused(m, "activation_limit activation_alpha", "without model.activation = clamped_swiglu", report);
}

void check_positions(const ModelDeck& m, std::int64_t sequence_tokens, Report& report) {
  if (m.positions != PositionKind::learned) return;
  if (m.max_positions < std::max<std::int64_t>(sequence_tokens, 1))
    report.add(equation("model.max_positions", m.max_positions) + " with model.positions = learned; legal: at least " +
               (sequence_tokens > 0 ? equation("train.sequence_tokens", sequence_tokens) : "1"));
  if (m.rope_scaling != RopeScaling::none)
    report.add("model.rope_scaling has no effect with model.positions = learned; legal: none");
}

// Part of a head, and layers, that rope leaves as they are.
void check_rope_parts(const ModelDeck& m, Report& report) {
  if (m.attention == AttentionKind::mla) return;  // check_latent_attention
  if (m.positions != PositionKind::rope) {
    if (m.rope_fraction != 1)
      report.add("model.rope_fraction = " + format_exact(m.rope_fraction) +
                 " has no effect with model.positions = learned; legal: 1");
    if (m.no_rope_every > 0)
      report.add(equation("model.no_rope_every", m.no_rope_every) +
                 " has no effect with model.positions = learned; legal: 0");
    return;
  }
  if (m.no_rope_every > m.layers)
    report.add(equation("model.no_rope_every", m.no_rope_every) + " is more than " +
               equation("model.layers", m.layers) + ", and has no effect; legal: at most that");
  if (m.rope_fraction > 1)
    return report.add("model.rope_fraction = " + format_exact(m.rope_fraction) + "; legal: more than 0, at most 1");
  if (m.head_dim == 0 || m.head_dim % 2 != 0) return;  // check_heads
  const auto rotated = static_cast<std::int64_t>(static_cast<double>(m.head_dim) * m.rope_fraction);
  if (rotated < 2 || rotated % 2 != 0)
    report.add(
        "model.rope_fraction = " + format_exact(m.rope_fraction) + " of " + equation("model.head_dim", m.head_dim) +
        " is " + std::to_string(rotated) + (rotated == 1 ? " entry" : " entries") +
        ", but rope rotates pairs; legal: an even number, as with " +
        format_exact(static_cast<double>(rotated + (rotated < 2 ? 2 - rotated : 1)) / static_cast<double>(m.head_dim)));
}

// Divisors of longrope: as many as frequencies.
void check_rope_divisors(const ModelDeck& m, Report& report) {
  const bool used = m.positions == PositionKind::rope && m.rope_scaling == RopeScaling::longrope;
  if (!used)
    return check_unused(m, "rope_short_factor rope_long_factor", "without model.rope_scaling = longrope", report);
  const std::int64_t rotated = m.attention == AttentionKind::mla
                                   ? m.rope_dim
                                   : static_cast<std::int64_t>(static_cast<double>(m.head_dim) * m.rope_fraction);
  if (rotated < 2) return;  // check_heads
  for (const auto& [key, list] :
       {std::pair{"rope_short_factor", &m.rope_short_factor}, std::pair{"rope_long_factor", &m.rope_long_factor}})
    if (std::ssize(*list) != rotated / 2)
      report.add("model." + std::string(key) + " has " + counted(std::ssize(*list), "number") +
                 "; legal: " + std::to_string(rotated / 2) + ", half as many as rope rotates entries of a head");
}

void check_rope_scaling(const ModelDeck& m, Report& report) {
  check_rope_divisors(m, report);
  if (m.positions != PositionKind::rope) return;
  if (m.rope_scaling == RopeScaling::none) {
    if (m.rope_factor != 1)
      report.add("model.rope_factor = " + format_exact(m.rope_factor) +
                 " has no effect with model.rope_scaling = none; legal: 1, or linear | llama3 | yarn | longrope");
    return;
  }
  const bool longrope = m.rope_scaling == RopeScaling::longrope;
  const bool original = longrope || m.rope_scaling == RopeScaling::llama3 || m.rope_scaling == RopeScaling::yarn;
  if (original && m.rope_original_positions < 1)
    report.add(
        "model.rope_original_positions = 0 with model.rope_scaling = llama3, yarn or longrope; legal: at least 1");
  if (longrope && m.rope_original_positions == 1 && m.rope_factor > 1 && m.rope_attention_factor == 0)
    report.add("model.rope_original_positions = 1 with model.rope_scaling = longrope; legal: at least 2");
  if (m.rope_scaling == RopeScaling::llama3 && m.rope_high_frequency_factor <= m.rope_low_frequency_factor)
    report.add("model.rope_high_frequency_factor = " + format_exact(m.rope_high_frequency_factor) +
               "; legal: more than model.rope_low_frequency_factor = " + format_exact(m.rope_low_frequency_factor));
  if (m.rope_scaling == RopeScaling::yarn && m.rope_theta <= 1)
    report.add("model.rope_theta = " + format_exact(m.rope_theta) + " with yarn; legal: more than 1");
}

void check_window(const ModelDeck& m, Report& report) {
  if (m.sliding_window_layer > 0 && m.sliding_window == 0)
    report.add(equation("model.sliding_window_layer", m.sliding_window_layer) +
               " has no effect without model.sliding_window; legal: 0");
  if (m.sliding_window > 0 && m.sliding_window_layer >= m.layers)
    report.add(equation("model.sliding_window_layer", m.sliding_window_layer) + "; legal: less than " +
               equation("model.layers", m.layers));
  const std::int64_t every = m.sliding_window_full_every;
  if (every > 0 && m.sliding_window == 0)
    report.add(equation("model.sliding_window_full_every", every) +
               " has no effect without model.sliding_window; legal: 0");
  else if (every > 0 && (every == 1 || every > m.layers))
    report.add(equation("model.sliding_window_full_every", every) +
               (every == 1 ? " leaves no layer the window" : " has no effect") + "; legal: 0, or 2 to " +
               equation("model.layers", m.layers));
  if (m.rope_window_theta > 0 && (m.sliding_window == 0 || m.positions != PositionKind::rope))
    report.add("model.rope_window_theta = " + format_exact(m.rope_window_theta) +
               " has no effect without model.sliding_window and model.positions = rope; legal: 0");
}

std::string placement_of_norms(const ModelDeck& m) {
  return std::string("model.norm_placement = ") + (m.norm_placement == NormPlacement::behind ? "behind" : "both");
}

void check_norms(const ModelDeck& m, Report& report) {
  if (m.norm_placement != NormPlacement::before && m.experts > 0)
    report.add(placement_of_norms(m) + " with " + equation("model.experts", m.experts) +
               ": not available; legal: before, or model.experts: 0");
}

// The scale stands in the rotary table of queries.
void check_query_scale(const ModelDeck& m, Report& report) {
  if (m.query_position_scale == 0 || m.attention == AttentionKind::mla) return;  // check_latent_attention
  const std::string begin = "model.query_position_scale = " + format_exact(m.query_position_scale);
  const bool original = m.rope_scaling == RopeScaling::llama3 || m.rope_scaling == RopeScaling::yarn;
  if (m.positions != PositionKind::rope || !original)
    report.add(begin + " without model.rope_original_positions; legal: 0, or model.rope_scaling: llama3 | yarn");
  for (const auto& [wrong, key] : {std::pair{m.qk_norm && !m.qk_norm_whole, "qk_norm = true"},
                                   {m.rope_fraction != 1, "rope_fraction below 1"},
                                   {m.no_rope_every > 0, "no_rope_every"}})
    if (wrong) report.add(begin + " with model." + key + ": not available; legal: 0");
}

// GPT-2's checkpoints fuse Q, K and V into one tensor and have no name for what the others add.
void check_family(const ModelDeck& m, Report& report) {
  if (m.family != Family::gpt2) return;
  if (is_gated(m.activation))
    report.add("model.activation = " + activation_word(m) +
               " with model.family = gpt2, whose checkpoints have no gate; legal: gelu | gelu_tanh | relu2, or another "
               "family");
  if (m.qk_norm) report.add("model.qk_norm = true with model.family = gpt2, whose checkpoints have none; legal: false");
  if (m.norm_placement != NormPlacement::before)
    report.add(placement_of_norms(m) +
               " with model.family = gpt2, whose checkpoints have no names for such norms; legal: before, or another "
               "family");
  if (m.experts > 0)
    report.add(equation("model.experts", m.experts) +
               " with model.family = gpt2, whose checkpoints have none; legal: 0, or another family");
  if (m.attention == AttentionKind::mla)
    report.add("model.attention = mla with model.family = gpt2; legal: standard, or another family");
}

// Whether the vocabulary is larger is told where config.json is read.
void check_new_rows(const ModelDeck& m, Report& report) {
  if (m.new_rows == NewRows::none || (m.load_weights && !m.hf.empty())) return;
  report.add(std::string("model.new_rows = ") + (m.new_rows == NewRows::mean ? "mean" : "noise") +
             " without weights of model.hf, whose tables it extends; legal: none, or model.hf with load_weights: true "
             "(`forge export` writes a checkpoint as such a directory)");
}

}  // namespace

void check_model(ModelDeck& model, std::int64_t sequence_tokens, Report& report) {
  check_latent_attention(model, report);
  check_heads(model, report);
  check_experts(model, report);
  check_activation(model, report);
  check_qk_norm(model, report);
  check_norms(model, report);
  check_query_scale(model, report);
  check_positions(model, sequence_tokens, report);
  check_rope_parts(model, report);
  check_rope_scaling(model, report);
  check_window(model, report);
  check_family(model, report);
  if (model.load_weights && model.hf.empty())
    report.add("model.load_weights = true without model.hf; legal: false, or give model.hf");
  check_new_rows(model, report);
}

void check_epsilons(const Deck& deck, bool trains, Report& report) {
  if (deck.train.precision == PrecisionName::fp64) return;
  const std::pair<const char*, double> epsilons[] = {{"model.norm_epsilon", deck.model.norm_epsilon},
                                                     {"model.latent_norm_epsilon", deck.model.latent_norm_epsilon},
                                                     {"optimizer.epsilon", trains ? deck.optimizer.epsilon : 1}};
  for (const auto& [key, value] : epsilons)
    if (value < static_cast<double>(std::numeric_limits<float>::min()))
      report.add(std::string(key) + " = " + format_exact(value) +
                 " is below the numbers of fp32 that keep their digits, in which all but fp64 computes; legal: "
                 "at least 1.2e-38, or precision: fp64");
}

void check_order(const std::string& where, std::int64_t first, std::int64_t& before, Report& report) {
  if (first <= before)
    report.add(where + " begins with step " + std::to_string(first) + ", the one before with step " +
               std::to_string(before) + "; legal: a later step than that");
  before = std::max(before, first);
}

std::string nearest_multiples(std::int64_t value, std::int64_t unit) {
  const std::int64_t lower = value / unit * unit;
  return (lower > 0 ? std::to_string(lower) + " or " : "") + std::to_string(lower + unit);
}

std::string nearest_divisors(std::int64_t value, std::int64_t whole) {
  std::int64_t lower = std::min(value, whole), upper = std::min(value, whole);
  while (whole % lower != 0) --lower;
  while (whole % upper != 0) ++upper;
  return lower == upper ? std::to_string(lower) : std::to_string(lower) + " or " + std::to_string(upper);
}

}  // namespace forge
