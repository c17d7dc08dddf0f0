#include "layout/check_layout.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "config/batch_ramp.hpp"
#include "config/check_parts.hpp"
#include "config/head_ranks.hpp"
#include "layout/expert_nodes.hpp"
#include "layout/shard_nodes.hpp"

namespace forge {

namespace {

bool tp_fits(const ModelDeck& m, std::int64_t tp) {
  return m.heads % tp == 0 && (m.kv_heads % tp == 0 || tp % m.kv_heads == 0) && m.ffn % tp == 0 &&
         m.linear_key_heads % tp == 0;
}

// Heads of keys and values are copied where they don't divide (nn/context_attention.plan.hpp).
bool all_to_all_fits(const ModelDeck& m, std::int64_t tp, std::int64_t cp) {
  return m.heads / tp % cp == 0;
}

// "2 or 4": the numbers from 1 to `most` around `value` that fit; 1 always does.
template <class Fits>
std::string nearest(std::int64_t value, std::int64_t most, Fits fits) {
  std::string below, above;
  for (std::int64_t n = std::min(value - 1, most); n >= 1 && below.empty(); --n)
    if (fits(n)) below = std::to_string(n);
  for (std::int64_t n = value + 1; n <= most && above.empty(); ++n)
    if (fits(n)) above = std::to_string(n);
  return below + (above.empty() ? "" : " or " + above);
}

void check_tensor(const Deck& deck, Report& report) {
  const ModelDeck& m = deck.model;
  const std::int64_t tp = deck.mesh.tp;
  const auto violated = [&](const std::string& rule) {
    report.add("", equation("mesh.tp", tp) + " " + rule +
                       "; nearest legal tp: " + nearest(tp, m.heads, [&](std::int64_t n) { return tp_fits(m, n); }));
  };
  if (m.heads % tp != 0) violated("does not divide " + equation("model.heads", m.heads));
  if (m.kv_heads % tp != 0 && tp % m.kv_heads != 0)
    violated("neither divides " + equation("model.kv_heads", m.kv_heads) + " nor is a multiple of it");
  if (m.linear_key_heads % tp != 0)
    violated("does not divide " + equation("model.linear_key_heads", m.linear_key_heads));
  if (m.ffn % tp != 0) violated("does not divide " + equation("model.ffn", m.ffn));
}

void divides(const char* axis, std::int64_t ranks, const char* key, std::int64_t value, Report& report) {
  if (ranks < 1 || value % ranks == 0) return;
  report.add("", equation(axis, ranks) + " does not divide " + equation(key, value) + "; nearest legal " +
                     std::string(axis).substr(5) + ": " +
                     nearest(ranks, value, [&](std::int64_t n) { return value % n == 0; }));
}

// Experts go to ep groups, their columns to etp ranks; those that every token goes to are split like a dense layer.
void check_expert_axes(const Deck& deck, Report& report) {
  const ModelDeck& m = deck.model;
  if (m.experts == 0) {
    if (deck.mesh.ep > 1) report.add("", equation("mesh.ep", deck.mesh.ep) + " without model.experts; legal: 1");
    if (deck.mesh.etp != 0 && deck.mesh.etp != deck.mesh.tp)
      report.add("", equation("mesh.etp", deck.mesh.etp) + " without model.experts; legal: 0, or as mesh.tp");
    return;
  }
  divides("mesh.ep", deck.mesh.ep, "model.experts", m.experts, report);
  divides("mesh.etp", deck.mesh.etp, "model.expert_ffn", m.expert_ffn, report);
  if (m.shared_expert_ffn > 0) divides("mesh.tp", deck.mesh.tp, "model.shared_expert_ffn", m.shared_expert_ffn, report);
}

void check_two_level(const Deck& deck, const MeshShape& mesh, Report& report) {
  if (deck.model.experts == 0 || deck.model.dispatch != DispatchMethod::two_level) return;
  const ExpertNodes nodes = expert_nodes(mesh, deck.mesh.node_ranks);
  if (nodes.nodes == 1) report.add("", "model.dispatch = two_level with " + nodes.rule + "; or dispatch: automatic");
}

void check_reduction(const Deck& deck, const MeshShape& mesh, Report& report) {
  if (deck.train.reduction != ReductionLevels::two_level) return;
  const std::string wrong = deck.train.zero_stage == 0 ? "train.zero_stage = 0; legal: 1, 2, 3"
                                                       : shard_nodes(mesh, deck.mesh.node_ranks).rule;
  if (!wrong.empty()) report.add("", "train.reduction = two_level with " + wrong + "; or reduction: one_level");
}

void check_gradient_check(const Deck& deck, const MeshShape& mesh, Report& report) {
  if (deck.train.check_gradients_steps == 0 || mesh.data_parallel() > mesh.data_parallel_together()) return;
  report.add("", equation("train.check_gradients_steps", deck.train.check_gradients_steps) +
                     " where no second data-parallel group can compute a group's gradients; legal: 0, or more than " +
                     std::to_string(mesh.data_parallel_together()) + " as mesh.dp_replicate x mesh.dp_shard" +
                     (mesh.data_parallel_together() > 1 ? " (so many exchange rows of experts)" : ""));
}

// Sequence lengths: two blocks of each context-parallel rank, whole rows of each tensor-parallel one.
void check_sequence(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  const std::int64_t tp = deck.mesh.tp, cp = deck.mesh.cp;
  const std::int64_t rows = tp / std::gcd(tp, t.microbatch_sequences);  // what sequence_tokens / cp is a multiple of
  const std::int64_t unit = cp * std::lcm(rows, cp > 1 ? std::int64_t{2} : std::int64_t{1});
  const std::string legal = "; nearest legal sequence_tokens: " + nearest_multiples(t.sequence_tokens, unit);
  const std::string tokens = equation("train.sequence_tokens", t.sequence_tokens);
  if (cp > 1 && t.sequence_tokens % (2 * cp) != 0)
    report.add("", tokens + " is no multiple of 2 x " + equation("mesh.cp", cp) +
                       " (each rank has two blocks of a sequence)" + legal);
  else if (t.sequence_tokens / cp % rows != 0)
    report.add("", equation("train.microbatch_sequences", t.microbatch_sequences) + " x " + tokens +
                       (cp > 1 ? " / " + equation("mesh.cp", cp) : "") + " = " +
                       std::to_string(t.microbatch_sequences * (t.sequence_tokens / cp)) + " rows are no multiple of " +
                       equation("mesh.tp", tp) + " (sequence parallelism cuts them)" + legal);
}

// Kernels number the rows of a microbatch on a rank in 32 bits, router_statistics pieces of 64 of them in 16.
constexpr std::int64_t most_rows = 64 * ((std::int64_t{1} << 16) - 1);

void check_rows(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  const std::int64_t cp = deck.mesh.cp, of_sequence = t.sequence_tokens / cp,
                     most = most_rows / std::max<std::int64_t>(of_sequence, 1);
  if (t.microbatch_sequences <= most) return;
  report.add("", equation("train.microbatch_sequences", t.microbatch_sequences) + " x " +
                     equation("train.sequence_tokens", t.sequence_tokens) + " / " + equation("mesh.cp", cp) + " = " +
                     std::to_string(t.microbatch_sequences * of_sequence) +
                     " rows of a microbatch on a rank; legal: at most " + std::to_string(most_rows) +
                     (most > 0 ? ", here microbatch_sequences up to " + std::to_string(most) + ", or more of cp"
                               : ", so more of cp"));
}

void check_depth(const Deck& deck, Report& report) {
  const std::int64_t tokens = deck.train.sequence_tokens;
  if (deck.model.mtp_depth >= tokens)
    report.add("", equation("model.mtp_depth", deck.model.mtp_depth) + " with " +
                       equation("train.sequence_tokens", tokens) +
                       ", of which no token has a label that far ahead; legal: at most " + std::to_string(tokens - 1));
}

void check_all_to_all(const Deck& deck, Report& report) {
  const ModelDeck& m = deck.model;
  const std::int64_t tp = deck.mesh.tp, cp = deck.mesh.cp;
  if (deck.mesh.cp_method != CpMethod::all_to_all || !tp_fits(m, tp) || all_to_all_fits(m, tp, cp)) return;
  report.add("", "mesh.cp_method = all_to_all with " + equation("mesh.cp", cp) +
                     ": cp must divide model.heads / tp = " + std::to_string(m.heads / tp) + "; nearest legal cp: " +
                     nearest(cp, m.heads / tp, [&](std::int64_t n) { return all_to_all_fits(m, tp, n); }) +
                     ", or cp_method: ring | all_gather");
}

void check_head_ranks(const Deck& deck, Report& report) {
  if (!tp_fits(deck.model, deck.mesh.tp)) return;
  const std::string problem = head_ranks_problem(deck);
  if (!problem.empty()) report.add("", problem);
}

// A cp rank works on whole key heads (nn/delta_exchange.hpp); what tp asks of them is reported by itself.
void check_linear_heads(const Deck& deck, Report& report) {
  const std::int64_t heads = deck.model.linear_key_heads, tp = deck.mesh.tp, cp = deck.mesh.cp;
  if (heads % tp != 0 || heads / tp % cp == 0) return;
  report.add("", equation("mesh.tp", tp) + " x " + equation("mesh.cp", cp) + " does not divide " +
                     equation("model.linear_key_heads", heads) + "; nearest legal cp: " +
                     nearest(cp, heads / tp, [&](std::int64_t n) { return heads / tp % n == 0; }));
}

void check_batch(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  const std::int64_t replicas = deck.mesh.dp_replicate * deck.mesh.dp_shard;
  // Else the world is wrong, and reported.
  if (replicas < 1 || replicas > std::numeric_limits<int>::max()) return;
  const std::int64_t unit = t.microbatch_sequences * replicas;
  const auto check = [&](const char* key, std::int64_t batch) {
    if (batch % unit != 0)
      report.add("", equation(key, batch) + " is no multiple of " +
                         equation("train.microbatch_sequences", t.microbatch_sequences) + " x data-parallel size " +
                         std::to_string(replicas) + " = " + std::to_string(unit) +
                         "; nearest legal: " + nearest_multiples(batch, unit));
  };
  check("train.global_batch_sequences", t.global_batch_sequences);
  for (std::size_t i = 0; i < t.batch_ramp.size(); ++i)
    check(ramp_key(i).c_str(), t.batch_ramp[i].global_batch_sequences);
}

}  // namespace

std::optional<MeshShape> check_layout(Deck& deck, std::int64_t ranks, Report& report) {
  const auto mesh = resolve_mesh(deck.mesh, ranks, report, deck.model.experts);
  if (mesh) {
    deck.mesh.dp_shard = mesh->dp_shard;
    deck.mesh.etp = mesh->etp;
    check_two_level(deck, *mesh, report);
    check_reduction(deck, *mesh, report);
    check_gradient_check(deck, *mesh, report);
  }
  check_batch(deck, report);
  check_tensor(deck, report);
  check_sequence(deck, report);
  check_rows(deck, report);
  check_transposed_groups(deck, report);
  check_depth(deck, report);
  check_all_to_all(deck, report);
  check_head_ranks(deck, report);
  check_linear_heads(deck, report);
  check_expert_axes(deck, report);
  return mesh;
}

}  // namespace forge
