#include "cover.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "config/family.hpp"
#include "config/schedule_name.hpp"
#include "core/random.hpp"
#include "layout/mesh_shape.hpp"
#include "models.hpp"

namespace forge::test {

namespace {

// Numbers below n in turn, from a key.
class Draw {
 public:
  explicit Draw(std::uint64_t key) : key_(key) {}
  std::size_t below(std::size_t n) { return mix(key_, count_++) % n; }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(below(static_cast<std::size_t>(most - least + 1)));
  }
  template <class Values>
  auto of(const Values& values) {
    return *(std::begin(values) + below(std::size(values)));
  }

 private:
  std::uint64_t key_, count_ = 0;
};

constexpr std::array<std::pair<ScheduleName, std::int64_t>, 6> schedules{{{ScheduleName::gpipe, 1},
                                                                          {ScheduleName::one_f_one_b, 1},
                                                                          {ScheduleName::interleaved, 2},
                                                                          {ScheduleName::interleaved, 3},
                                                                          {ScheduleName::zero_bubble, 1},
                                                                          {ScheduleName::zb_v, 1}}};

// A layout as the number of its value of each factor.
constexpr std::size_t factors = 12;
using Levels = std::array<std::size_t, factors>;
enum Factor : std::size_t { pp, replicate, shard, cp, tp, zero, recompute, schedule, method, split, microbatch, model };

constexpr std::array<std::int64_t, 7> pp_extents{1, 2, 3, 4, 5, 6, 8};
constexpr std::array<std::int64_t, 4> replicate_extents{1, 2, 3, 4}, cp_extents{1, 2, 3, 4}, tp_extents{1, 2, 4, 8};
constexpr std::array<std::int64_t, 5> shard_extents{1, 2, 3, 4, 5};

std::int64_t ranks_of_levels(const Levels& l) {
  return pp_extents[l[pp]] * replicate_extents[l[replicate]] * shard_extents[l[shard]] * cp_extents[l[cp]] *
         tp_extents[l[tp]];
}

LayoutCase case_of(const Levels& l) {
  MeshDeck mesh;
  mesh.pp = pp_extents[l[pp]];
  mesh.dp_replicate = replicate_extents[l[replicate]];
  mesh.dp_shard = shard_extents[l[shard]];
  mesh.cp = cp_extents[l[cp]];
  mesh.tp = tp_extents[l[tp]];
  Choice choice = zero_choices()[l[zero]];
  choice.recompute = recompute_of(l[recompute]);
  std::tie(choice.schedule, choice.chunks) = schedules[l[schedule]];
  const TestModel chosen = test_models()[l[model]];
  Deck deck = layout_deck(chosen.deck, mesh, choice, 0);
  deck.mesh.cp_method = l[method] < 3 ? static_cast<CpMethod>(l[method]) : CpMethod::ring;
  if (l[method] == 3) set_two_levels(deck.mesh, l[model]);
  deck.train.microbatch_sequences = static_cast<std::int64_t>(l[microbatch]) + 1;
  const std::array<std::string, 4> splits{"even", "balanced", split_string(deck, 1), split_string(deck, 2)};
  deck.schedule.split = splits[l[split]];
  deck.train.global_batch_sequences = 4 * mesh.dp_replicate * mesh.dp_shard;  // so that pipelines have microbatches
  fit_model(deck);
  return {chosen.name, deck};
}

// Every mesh of these extents, each with some draws of the rest.
std::vector<Levels> candidates() {
  const std::array<std::size_t, factors> counts{7, 4, 5, 4, 4, zero_choices().size(),
                                                3, 6, 4, 4, 3, test_models().size()};
  std::vector<Levels> pool;
  Draw draw(17);
  for (std::size_t m = 0; m < counts[pp] * counts[replicate] * counts[shard] * counts[cp] * counts[tp]; ++m)
    for (int repeat = 0; repeat < 3; ++repeat) {
      Levels l{};
      std::size_t rest = m;
      for (const Factor f : {pp, replicate, shard, cp, tp}) {
        l[f] = rest % counts[f];
        rest /= counts[f];
      }
      for (std::size_t f = zero; f < factors; ++f) l[f] = draw.below(counts[f]);
      const std::int64_t ranks = ranks_of_levels(l);
      if (ranks >= 9 && ranks <= 64) pool.push_back(l);
    }
  return pool;
}

using Pair = std::array<std::size_t, 4>;  // factor, value, factor, value

std::vector<Pair> pairs_of(const Levels& l) {
  std::vector<Pair> pairs;
  for (std::size_t a = 0; a < factors; ++a)
    for (std::size_t b = a + 1; b < factors; ++b) pairs.push_back({a, l[a], b, l[b]});
  return pairs;
}

}  // namespace

std::vector<LayoutCase> covering_layouts() {
  const auto pool = candidates();
  std::set<Pair> open;
  for (const Levels& l : pool)
    for (const Pair& pair : pairs_of(l)) open.insert(pair);
  std::vector<LayoutCase> cases;
  while (!open.empty()) {
    const Levels* best = nullptr;
    std::size_t most = 0;
    for (const Levels& l : pool) {
      const auto pairs = pairs_of(l);
      const auto fresh = static_cast<std::size_t>(
          std::count_if(pairs.begin(), pairs.end(), [&](const Pair& p) { return open.count(p) > 0; }));
      if (fresh > most || (fresh == most && best && ranks_of_levels(l) < ranks_of_levels(*best))) {
        most = fresh;
        best = &l;
      }
    }
    for (const Pair& pair : pairs_of(*best)) open.erase(pair);
    cases.push_back(case_of(*best));
  }
  return cases;
}

std::vector<LayoutCase> drawn_layouts(int ranks, std::uint64_t key) {
  const auto models = test_models();
  std::vector<LayoutCase> cases;
  Draw draw(mix(key, static_cast<std::uint64_t>(ranks)));
  for (const MeshDeck& mesh : meshes_of(ranks)) {
    const TestModel model = draw.of(models);
    cases.push_back({model.name, layout_deck(model.deck, mesh, draw.of(choices_of(mesh)), draw.below(60))});
  }
  return cases;
}

namespace {

// A mesh with a drawn model of multi-token prediction, ep and etp, and all else.
LayoutCase drawn_mtp(const MeshDeck& mesh, std::uint64_t key) {
  const auto models = mtp_models();
  const TestModel& model = models[mix(key, 0) % models.size()];
  MeshDeck chosen = mesh;
  if (model.deck.model.experts > 0)
    if (const auto meshes = expert_meshes(model.deck, mesh); !meshes.empty())
      chosen = meshes[mix(key, 1) % meshes.size()];
  const auto choices = choices_of(mesh);
  return {model.name, layout_deck(model.deck, chosen, choices[mix(key, 2) % choices.size()], mix(key, 3) % 60)};
}

}  // namespace

std::vector<LayoutCase> drawn_mtp_layouts(int ranks, int draws, std::size_t stride) {
  std::vector<LayoutCase> cases;
  const auto meshes = meshes_of(ranks);
  for (std::size_t i = 0; i < meshes.size(); i += stride)
    for (int draw = 0; draw < draws; ++draw)
      cases.push_back(drawn_mtp(
          meshes[i], mix(61, (i * 64 + static_cast<std::size_t>(draw)) * 64 + static_cast<std::size_t>(ranks))));
  return cases;
}

Deck with_training(Deck deck, std::int64_t steps) {
  deck.train.steps = steps;
  deck.optimizer.warmup_steps = 3;
  deck.data.validation_files = {token_file(deck.model.vocabulary, 4353)};
  deck.train.validate_every_steps = 4;
  deck.train.validation_sequences = 13;
  return deck;
}

LayoutCase drawn_model(std::uint64_t key) {
  Draw draw(mix(23, key));
  const auto models = test_models();
  const TestModel model = draw.of(models);
  Deck deck = model.deck;
  ModelDeck& m = deck.model;
  const auto meshes = meshes_of(static_cast<int>(draw.between(1, 8)));
  const MeshDeck mesh = draw.of(meshes);
  m.layers = draw.between(1, 9);
  m.kv_heads = mesh.tp * draw.between(1, 2);
  if (draw.below(3) == 0 && mesh.tp > 1) m.kv_heads = 1;  // copies
  m.heads = std::max(m.kv_heads, mesh.tp) * draw.between(1, 3);
  const bool latent = m.attention == AttentionKind::mla;
  if (m.family == Family::gpt2 || latent) m.kv_heads = m.heads;
  m.head_dim = m.positions == PositionKind::rope ? 2 * draw.between(1, 5) : draw.between(2, 9);
  if (latent) {
    m.head_dim = 0;
    if (m.q_lora > 0) m.q_lora = draw.between(1, 20);
    m.kv_lora = draw.between(1, 20);
    m.nope_dim = draw.between(1, 8);
    m.rope_dim = 2 * draw.between(1, 4);
    m.value_dim = draw.between(1, 9);
    m.rope_interleave = draw.below(2) == 0;
  }
  if (m.family == Family::llama && key % 3 == 0) m.family = Family::phi3;
  m.width = draw.between(5, 40);
  m.ffn = mesh.tp * draw.between(3, 20);
  m.vocabulary = draw.between(9, 90);
  m.initial_std = 1 / std::sqrt(static_cast<double>(m.width));
  m.tied_embeddings = draw.below(2) == 0;
  m.qk_norm = m.family == Family::qwen3;
  m.qk_norm_whole = m.qk_norm && key % 3 > 0;
  // A window of one token has no gradient of keys to compare.
  m.sliding_window = m.family == Family::gpt2 || latent || draw.below(3) == 0 ? 0 : draw.between(2, 9);
  m.sliding_window_layer = m.sliding_window > 0 ? draw.between(0, m.layers - 1) : 0;
  m.dropout = draw.below(3) == 0 ? 0.2 : 0;
  m.sliding_window_full_every = 0;
  if (m.sliding_window > 0 && m.layers > 1 && key % 2 == 0)
    m.sliding_window_full_every = 2 + static_cast<std::int64_t>(key / 2) % (m.layers - 1);
  m.rope_window_theta = m.sliding_window > 0 && m.positions == PositionKind::rope && key % 5 < 3 ? 100 : 0;
  const bool behind = m.family != Family::gpt2 && !latent && m.experts == 0 && key % 5 > 2;
  m.norm_placement = !behind ? NormPlacement::before : key % 5 == 3 ? NormPlacement::behind : NormPlacement::both;
  if (m.activation == Activation::swiglu && m.experts == 0 && key % 3 == 1) m.activation = Activation::geglu;
  m.query_pre_attn_scalar = latent || key % 4 > 0 ? 0 : 3;
  m.embedding_scale = key % 3 == 2 ? 1.5 : 1;
  m.rope_fraction = m.positions == PositionKind::rope && !latent && m.head_dim % 4 == 0 && key % 2 == 0 ? 0.5 : 1;
  m.no_rope_every = m.positions == PositionKind::rope && !latent ? static_cast<std::int64_t>(key % 4) : 0;
  if (m.no_rope_every > m.layers) m.no_rope_every = 0;
  m.query_position_scale = 0;
  if (m.positions == PositionKind::rope && !latent && !m.qk_norm && m.rope_fraction == 1 && m.no_rope_every == 0) {
    m.rope_scaling = RopeScaling::yarn;
    m.rope_factor = 2;
    m.rope_original_positions = 5;
    m.query_position_scale = 0.5;
  }
  TrainDeck& t = deck.train;
  t.sequence_tokens = draw.between(7, 40);
  t.global_batch_sequences = draw.between(1, 12);
  t.seed = draw.below(1000);
  t.head_chunk_rows = draw.between(1, 40);
  t.z_loss_coefficient = draw.below(3) == 0 ? 1e-2 : 0;
  deck.data.document_end_token = draw.between(-1, 5);
  deck.data.files = {token_file(m.vocabulary, 4097)};
  const auto choices = choices_of(mesh);
  return {model.name + " " + std::to_string(key), layout_deck(deck, mesh, draw.of(choices), draw.below(60))};
}

}  // namespace forge::test
