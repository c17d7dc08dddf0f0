#include "plan/warnings.hpp"

#include "config/check_parts.hpp"
#include "config/ranges.hpp"
#include "config/recompute.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "plan/placement.hpp"
#include "plan/rank_memory.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/schedule_times.hpp"

namespace forge {

namespace {

constexpr double most_idle = 0.1;            // of a step
constexpr double least_memory = 0.6;         // of a GPU's
constexpr double safe_memory = 0.97;         // likewise, which leaves room for what isn't planned
constexpr std::int64_t short_tokens = 8192;  // of a sequence, for context parallelism
constexpr std::int64_t many_experts = 32;

long long whole(std::int64_t n) {
  return n;
}

class Warnings {
 public:
  Warnings(const RunSetup& setup, const Site& site) : setup_(setup), deck_(setup.deck), site_(site) {}

  std::vector<std::string> all() {
    of_rate();
    of_profile();
    of_nodes();
    of_schedule();
    of_sequence();
    of_overlap();
    of_experts();
    of_adapters();
    if (site_.usable_bytes > 0) of_memory();
    return std::move(list_);
  }

 private:
  // Trials of a few steps.
  void of_rate() {
    const OptimizerDeck& o = deck_.optimizer;
    const std::int64_t steps = deck_.train.steps;
    if (o.warmup_steps > steps)
      list_.push_back(
          formatted("optimizer.warmup_steps = %lld with train.steps = %lld: the run ends within its warm-up, "
                    "before the rate is optimizer.learning_rate",
                    whole(o.warmup_steps), whole(steps)));
    else if (o.schedule == RateSchedule::wsd && o.warmup_steps < steps && o.warmup_steps + o.decay_steps > steps)
      list_.push_back(formatted(
          "optimizer.decay_steps = %lld with optimizer.warmup_steps = %lld and train.steps = %lld: wsd decays over "
          "the %lld steps behind the warm-up",
          whole(o.decay_steps), whole(o.warmup_steps), whole(steps), whole(steps - o.warmup_steps)));
    if (o.cooldown_from >= steps && o.cooldown_from > 0)
      list_.push_back(formatted(
          "optimizer.cooldown_from = %lld with train.steps = %lld: the run ends before its cooldown; better: less "
          "than train.steps",
          whole(o.cooldown_from), whole(steps)));
  }

  // Steps and ranks that the run doesn't have, and more files than anybody looks at.
  void of_profile() {
    constexpr std::int64_t most_files = 256;
    const OutputDeck& o = deck_.output;
    if (o.profile.empty()) return;
    const std::int64_t last = o.profile.back().last, ranks = setup_.mesh.world(),
                       steps = numbers_in(o.profile, 1, deck_.train.steps),
                       writing = o.profile_ranks.empty() ? ranks : numbers_in(o.profile_ranks, 0, ranks - 1);
    if (last > deck_.train.steps)
      list_.push_back(
          formatted("output.profile = %s with train.steps = %lld: the run ends before step %lld, of which "
                    "no profile is written",
                    ranges_text(o.profile).c_str(), whole(deck_.train.steps), whole(last)));
    if (!o.profile_ranks.empty() && o.profile_ranks.back().last >= ranks)
      list_.push_back(formatted("output.profile_ranks = %s: the run has no ranks behind %lld",
                                ranges_text(o.profile_ranks).c_str(), whole(ranks - 1)));
    if (steps * writing > most_files)
      list_.push_back(
          formatted("output.profile = %s asks for %lld files, one for each step and rank; better: fewer "
                    "steps, or some ranks alone, as in output.profile_ranks: 0, %lld",
                    ranges_text(o.profile).c_str(), whole(steps * writing), whole(ranks - 1)));
  }

  // etp divides tp, and lies inside where tp does.
  void of_nodes() {
    Placement tp;
    for (int stage = 0; stage < std::min(setup_.mesh.pp, 16); ++stage) {
      const auto places = worst_placements(setup_.mesh, stage, groups_of(setup_), site_.ranks_per_node);
      if (places[to_size(Group::tp)].nodes > tp.nodes) tp = places[to_size(Group::tp)];
    }
    if (tp.nodes > 1)
      list_.push_back(formatted(
          "mesh.tp = %d has groups on %d nodes of %d ranks: collectives that every layer waits for cross the network; "
          "better: tp within a node, pp and shards across",
          setup_.mesh.tp, tp.nodes, site_.ranks_per_node));
  }

  // By the schedule itself, stages being equal.
  void of_schedule() {
    if (setup_.mesh.pp == 1) return;
    const Schedule schedule = schedule_of(deck_, setup_.mesh.pp, setup_.microbatches);
    const double again = fraction_recomputed(deck_.train, layers_of_stage(deck_));
    const double idle = timeline(schedule, uniform_durations(1, 1 + again, 1)).bubble_fraction();
    if (idle > most_idle)
      list_.push_back(formatted(
          "schedule.name = %s with %d microbatches on mesh.pp = %d: ranks idle %.1f %% of a step; better: more "
          "microbatches (train.global_batch_sequences, fewer data-parallel ranks), schedule.virtual_stages, "
          "zero_bubble or zb_v",
          schedule.name.c_str(), setup_.microbatches, setup_.mesh.pp, 100 * idle));
  }

  void of_sequence() {
    if (setup_.mesh.cp > 1 && deck_.train.sequence_tokens < short_tokens)
      list_.push_back(
          formatted("mesh.cp = %d with train.sequence_tokens = %lld: a rank has %lld tokens of a sequence, and keys "
                    "travel more than they are used; better: cp from %lld tokens on, dp_shard below",
                    setup_.mesh.cp, whole(deck_.train.sequence_tokens),
                    whole(deck_.train.sequence_tokens / setup_.mesh.cp), whole(short_tokens)));
  }

  void of_overlap() {
    const MeshShape& m = setup_.mesh;
    if (deck_.train.overlap == Overlap::pairs && m.tp * m.cp * m.ep == 1)
      list_.push_back(
          "train.overlap = pairs where no layer waits for other ranks (tp, cp and ep are 1): more memory for nothing; "
          "better: train.overlap = none");
  }

  void of_experts() {
    const int ranks = setup_.mesh.world() / setup_.mesh.pp;
    if (setup_.spec.E() >= many_experts && setup_.mesh.ep == 1 && ranks > 1)
      list_.push_back(formatted(
          "mesh.ep = 1 with model.experts = %lld on %d ranks a stage: each rank holds or gathers all experts; "
          "better: ep up to the ranks of a node first",
          whole(setup_.spec.E()), ranks));
  }

  void of_adapters() {
    const ModelDeck& model = deck_.model;
    const std::string obstacle = model.adapter.on() ? peft_obstacle(model) : "";
    if (!obstacle.empty()) list_.push_back(obstacle + ", so that only forge would; better: both");
  }

  void of_memory() {
    const std::size_t need = rank_memory(setup_, RunKind::training).total();
    const double fraction = static_cast<double>(need) / static_cast<double>(site_.usable_bytes);
    if (fraction > 1) return;  // said elsewhere, as an error
    of_recomputation();
    if (fraction < least_memory)
      list_.push_back(
          formatted("%.0f %% of the GPU's memory is used (%s of %s): larger microbatches, less recomputation or fewer "
                    "ranks a model would make more of it; better: train.microbatch_sequences as large as fits",
                    100 * fraction, format_bytes(need).c_str(), format_bytes(site_.usable_bytes).c_str()));
  }

  // Less recomputation that has room, too.
  void of_recomputation() {
    const Recompute now = deck_.train.recompute;
    const std::int64_t blocks = deck_.train.recompute_full_layers;
    const auto with_blocks = [&](std::int64_t n) {
      return blocks > 0 ? formatted(" and train.recompute_full_layers = %lld", whole(n)) : std::string();
    };
    for (const Recompute less : recompute_policies(deck_.model)) {
      if (!now.includes(less) || (less == now && blocks == 0)) return;
      Deck other = deck_;
      other.train.recompute = less;
      other.train.recompute_full_layers = 0;
      const std::size_t bytes = need_of(other);
      if (bytes == 0 || static_cast<double>(bytes) > safe_memory * static_cast<double>(site_.usable_bytes)) continue;
      list_.push_back(
          formatted("train.recompute = %s%s where %s%s has room (%s of %s): layers are computed again for nothing; "
                    "better: train.recompute = %s%s",
                    name_of(now).c_str(), with_blocks(blocks).c_str(), name_of(less).c_str(),
                    blocks > 0 ? " alone" : "", format_bytes(bytes).c_str(), format_bytes(site_.usable_bytes).c_str(),
                    name_of(less).c_str(), with_blocks(0).c_str()));
      return;
    }
  }

  // 0: not legal.
  std::size_t need_of(Deck deck) const {
    try {
      check_deck(deck, setup_.mesh.world());
    } catch (const BadInput&) {
      return 0;
    }
    return rank_memory(on_devices(make_setup(deck), setup_.capability), RunKind::training).total();
  }

  const RunSetup& setup_;
  const Deck& deck_;
  Site site_;
  std::vector<std::string> list_;
};

}  // namespace

std::vector<std::string> warnings_of(const RunSetup& setup, const Site& site) {
  return Warnings(setup, site).all();
}

}  // namespace forge
