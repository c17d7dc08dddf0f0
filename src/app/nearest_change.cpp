#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>

#include "app/device_fit.hpp"
#include "config/recompute.hpp"
#include "config/schedule_name.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "predict/least_memory.hpp"
#include "predict/neighbours.hpp"
#include "predict/search_space.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/from_deck.hpp"

namespace forge {

namespace {

using DeckSetting = std::function<void(Deck&)>;

// Of each list at most one is taken: what costs least comes first, what needs least last.
std::vector<std::vector<DeckSetting>> memory_settings(const Deck& deck, const std::vector<Neighbour>& neighbours) {
  std::vector<std::vector<DeckSetting>> lists(5);
  if (deck.train.overlap != Overlap::none) lists[4].push_back([](Deck& d) { d.train.overlap = Overlap::none; });
  for (const Recompute r : recompute_policies(deck.model))
    if (r != deck.train.recompute && r.includes(deck.train.recompute))
      lists[0].push_back([r](Deck& d) { set_recompute(d.train, r); });
  for (std::int64_t n = deck.train.microbatch_sequences / 2; n >= 1; n /= 2)
    lists[1].push_back([n](Deck& d) { d.train.microbatch_sequences = n; });
  for (std::int64_t stage = deck.train.zero_stage + 1; stage <= 3; ++stage)
    lists[2].push_back([stage](Deck& d) {
      d.train.zero_stage = stage;
      if (stage >= 2) d.train.accumulate = Accumulation::sharded;
    });
  for (const Neighbour& n : neighbours) {
    const ScheduleDeck& schedule = n.deck.schedule;
    const bool holds_less = schedule.name == ScheduleName::one_f_one_b || schedule.name == ScheduleName::zb_v;
    if (n.kind == "schedule" && holds_less) lists[3].push_back([schedule](Deck& d) { d.schedule = schedule; });
  }
  return lists;
}

// The deck with all choices of at most one setting of each list; fewer first. Without the deck itself.
std::vector<Deck> combinations(const Deck& deck, const std::vector<std::vector<DeckSetting>>& lists) {
  struct Chosen {
    Deck deck;
    int settings;
  };
  std::vector<Chosen> all{{deck, 0}};
  for (const auto& list : lists) {
    const auto before = all;
    for (const DeckSetting& set : list)
      for (Chosen chosen : before) {
        set(chosen.deck);
        ++chosen.settings;
        all.push_back(std::move(chosen));
      }
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.settings < b.settings; });
  std::vector<Deck> decks;
  for (std::size_t i = 1; i < all.size(); ++i) decks.push_back(std::move(all[i].deck));
  return decks;
}

// The first of some decks that fits in place of the setup's.
class NearestFit {
 public:
  NearestFit(const RunSetup& setup, RunKind kind, std::size_t limit, FitOn on)
      : setup_(setup), kind_(kind), limit_(limit), on_(on) {}

  bool fits(Deck deck) {
    const std::size_t bytes = bytes_of(deck);
    if (bytes < bytes_) take(std::move(deck), bytes);
    return bytes <= limit_;
  }
  // Where the deck that fits recomputes all blocks, and this one didn't: as few of them as do.
  void recompute_less() {
    if (deck_.train.recompute != Recompute::full || setup_.deck.train.recompute == Recompute::full) return;
    Deck deck = deck_;
    deck.train.recompute = most_below_full(deck.model);
    std::int64_t& blocks = deck.train.recompute_full_layers;
    std::int64_t low = 0, high = layers_of_stage(deck);  // too few, and enough
    while (high - low > 1) {
      blocks = (low + high) / 2;
      const std::size_t bytes = bytes_of(deck);
      if (bytes <= limit_)
        high = blocks, take(deck, bytes);
      else
        low = blocks;
    }
  }
  bool first_of(const std::vector<Deck>& decks) {
    return std::any_of(decks.begin(), decks.end(), [&](const Deck& deck) { return fits(deck); });
  }
  // Of the deck that needs least so far, or of the one that fits, where there is one.
  std::size_t bytes() const { return bytes_; }
  const std::string& keys() const { return keys_; }

 private:
  // More than any limit where the deck, which is completed, isn't legal.
  std::size_t bytes_of(Deck& deck) const {
    try {
      check_deck(deck, setup_.mesh.world());
    } catch (const BadInput&) {
      return std::numeric_limits<std::size_t>::max();
    }
    const RankMemory memory = rank_memory(on_devices(make_setup(deck), setup_.capability), kind_);
    return on_ == FitOn::gpu ? memory.total() : memory.plan.total();
  }
  void take(Deck deck, std::size_t bytes) {
    bytes_ = bytes;
    keys_ = layout_difference(setup_.deck, deck);
    deck_ = std::move(deck);
  }

  const RunSetup& setup_;
  RunKind kind_;
  std::size_t limit_;
  FitOn on_;
  Deck deck_;  // that needs least so far, or the one that fits
  std::size_t bytes_ = std::numeric_limits<std::size_t>::max();
  std::string keys_;
};

bool is_of_mesh(const Neighbour& n) {
  constexpr std::string_view kinds[] = {"tp", "pp", "cp", "dp", "ep", "etp"};
  return std::find(std::begin(kinds), std::end(kinds), n.kind) != std::end(kinds);
}

// One setting or a neighbour's mesh, then several settings, then both.
bool find_nearest(NearestFit& nearest, const Deck& deck, int ranks) {
  const std::vector<Neighbour> neighbours = neighbours_of(deck, ranks);
  const auto lists = memory_settings(deck, neighbours);
  for (const auto& list : lists)
    if (nearest.first_of(combinations(deck, {list}))) return true;
  std::vector<Deck> meshes;
  for (const Neighbour& n : neighbours)
    if (is_of_mesh(n)) meshes.push_back(n.deck);
  if (nearest.first_of(meshes) || nearest.first_of(combinations(deck, lists))) return true;
  return std::any_of(meshes.begin(), meshes.end(), [&](const Deck& mesh) {
    const std::vector<Deck> all = combinations(mesh, {lists[0], lists[1], lists[2]});
    return !all.empty() && nearest.fits(all.back()) && nearest.first_of(all);
  });
}

}  // namespace

std::string nearest_change(const RunSetup& setup, RunKind kind, std::size_t limit, FitOn on) {
  NearestFit nearest(setup, kind, limit, on);
  const bool found = find_nearest(nearest, setup.deck, setup.mesh.world());
  if (found) nearest.recompute_less();
  const std::string bytes = nearest.keys().empty() ? "" : format_bytes(nearest.bytes());
  if (found) return "nearest change that fits: " + nearest.keys() + " (" + bytes + ")";
  return "no change of mesh, schedule, train.recompute, train.microbatch_sequences and train.zero_stage makes it fit" +
         (bytes.empty() ? "" : " (least: " + bytes + " with " + nearest.keys() + ")") +
         "; legal: more ranks (mesh.pp, mesh.tp, mesh.dp_shard)" +
         (on == FitOn::gpu ? ", or a larger GPU" : " on more nodes, or nodes with more memory");
}

namespace {

constexpr int gpus_of_node = 8, most_gpus = 8192;
constexpr double most_seconds = 10;

// GPUs that have room for parameters and what the optimizer keeps of them; 1 where no single rank may have the deck.
int least_gpus(const Deck& deck, std::size_t usable) {
  MeshDeck one;
  one.dp_shard = 1;
  Deck whole = smallest_on(deck, one);
  try {
    check_deck(whole, 1);
  } catch (const BadInput&) {
    return 1;
  }
  const MemoryPlan plan = planned_memory(make_setup(whole), RunKind::training, 0);
  const std::size_t state = plan.of(Category::parameters) + plan.of(Category::optimizer);
  return static_cast<int>(std::clamp<std::size_t>(state / usable, 1, most_gpus));
}

int first_gpus(const Deck& deck, std::size_t usable) {
  const int least = least_gpus(deck, usable);
  return least > gpus_of_node ? (least + gpus_of_node - 1) / gpus_of_node * gpus_of_node : least;
}

// One more up to a node's; then multiples of nodes, of more than 64 of an eighth of a power of two; the deck's own
// number is among them.
int next_gpus(const Deck& deck, int ranks) {
  const int step = ranks < gpus_of_node ? 1 : std::max<int>(gpus_of_node, std::bit_floor(to_size(ranks)) / 8);
  const int next = (ranks / step + 1) * step;
  const std::int64_t own = ranks_of(deck.mesh);
  return own > ranks && own < next ? static_cast<int>(own) : next;
}

}  // namespace

namespace {

// Of so many ranks, on which some layout fits: the first one in the search's order, with as few stages, tp and cp as
// do. None where `late` becomes true first.
template <class Late>
std::optional<LeastLayout> plainest_layout(const Deck& deck, int ranks, std::size_t usable, int capability,
                                           const Late& late) {
  for (const MeshDeck& mesh : meshes_of(deck, ranks, gpus_of_node)) {
    if (mesh.dp_replicate > 1) continue;
    if (late()) return {};
    Deck least = smallest_on(deck, mesh);
    const auto has_room = [&](bool all_stages) {
      const auto bytes = bytes_on(least, ranks, capability, all_stages);
      return bytes && *bytes <= usable;
    };
    // With few microbatches first: all of a step's on all stages take long to plan.
    if (!has_room(false) || !has_room(true)) continue;
    least.train.global_batch_sequences = deck.train.global_batch_sequences;
    least.train.batch_ramp = deck.train.batch_ramp;
    const auto bytes = bytes_on(least, ranks, capability, true);
    if (bytes && *bytes <= usable) return LeastLayout{std::move(least), *bytes};
  }
  return {};
}

}  // namespace

FewestGpus fewest_gpus(const Deck& deck, std::size_t usable, int capability) {
  const auto start = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > most_seconds;
  };
  FewestGpus fewest;
  const int first = first_gpus(deck, usable);
  fewest.tried = first - 1;
  for (int ranks = first; ranks <= most_gpus && fewest.ranks == 0 && !late(); ranks = next_gpus(deck, ranks)) {
    const auto least = least_layout(deck, ranks, gpus_of_node, capability);
    if (least && least->bytes <= usable) {
      if (const auto plain = plainest_layout(deck, ranks, usable, capability, late))
        fewest = {ranks, layout_difference(deck, plain->deck), plain->bytes, fewest.tried};
      else if (late())
        break;
    }
    if (fewest.ranks == 0) fewest.tried = ranks;
  }
  // The plainest layouts may lack one on the deck's own number that a change of the deck has.
  const int own = static_cast<int>(ranks_of(deck.mesh));
  if (own > most_gpus || (fewest.ranks > 0 && fewest.ranks <= own)) return fewest;
  const RunSetup setup = on_devices(make_setup(deck), capability);
  NearestFit nearest(setup, RunKind::training, usable, FitOn::gpu);
  if (!find_nearest(nearest, deck, own)) return fewest;
  if (fewest.ranks > 0) return {own, nearest.keys(), nearest.bytes(), own - 1};
  fewest.enough = own;
  fewest.tried = std::min(fewest.tried, own - 1);
  return fewest;
}

std::string FewestGpus::text() const {
  if (ranks == 0)
    return "fewest GPUs that it fits on: more than " + std::to_string(tried) +
           (enough > 0 ? " and at most " + std::to_string(enough) : "") +
           (tried < most_gpus / 2 ? formatted(", as far as %.0f s were enough", most_seconds) : "");
  return "fewest GPUs that it fits on: " + std::to_string(ranks) + ", with " + keys + " (" + format_bytes(bytes) + ")";
}

}  // namespace forge
