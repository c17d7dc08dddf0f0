#include "predict/search.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "config/recompute.hpp"
#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "core/in_parallel.hpp"
#include "core/to_size.hpp"
#include "nn/units.plan.hpp"
#include "predict/search_bounds.hpp"
#include "predict/search_memo.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/from_deck.hpp"

namespace forge {

namespace {

// A layout whose step is known from fewer microbatches than it has.
struct Estimated {
  Candidate candidate;
  double seconds;
};
constexpr double close = 1.01;  // estimates and simulated steps are nearer to one another, as a factor

// The outcome of a step of fewer microbatches as that of the deck's, in so many seconds.
Outcome drawn_out(Outcome outcome, const Deck& deck, double seconds) {
  Prediction& p = outcome.time;
  const auto sequences = static_cast<double>(deck.train.global_batch_sequences);
  const double longer = seconds / p.seconds;
  const double faster = sequences / static_cast<double>(outcome.deck.train.global_batch_sequences) / longer;
  p.seconds = seconds;
  for (double* bound : {&p.low, &p.high}) *bound *= longer;
  for (double* rate : {&p.tokens_per_second, &p.mfu, &p.hfu}) *rate *= faster;
  outcome.deck.train.global_batch_sequences = deck.train.global_batch_sequences;
  outcome.deck.train.batch_ramp = deck.train.batch_ramp;
  return outcome;
}

// Puts an outcome where its step belongs among at most `most` of the best.
void keep_best(std::vector<Outcome>& best, Outcome outcome, int most) {
  outcome.time.spans.clear();
  outcome.time.tasks.clear();
  const auto place = std::upper_bound(best.begin(), best.end(), outcome, [](const Outcome& a, const Outcome& b) {
    return a.time.seconds < b.time.seconds;
  });
  best.insert(place, std::move(outcome));
  if (static_cast<int>(best.size()) > most) best.pop_back();
}

class Search {
 public:
  Search(const Machine& machine, const Deck& deck, const SearchOptions& options)
      : machine_(machine),
        deck_(deck),
        options_(options),
        usable_(usable_memory(machine, options.ranks)),
        units_(parameter_units(resolve_model(deck.model))),
        meshes_(meshes_of(deck, options.ranks, machine.ranks_per_node)) {}

  SearchResult run() {
    list_candidates();
    evaluate_smallest();
    std::size_t next = 0;
    constexpr std::size_t together = 8;
    for (; next < candidates_.size() && spent_ < options_.seconds; next += together) {
      std::vector<Evaluation> found(std::min(together, candidates_.size() - next));
      timed(found.size(), [&](std::size_t i) { found[i] = evaluate(candidates_[next + i], false); });
      for (std::size_t i = 0; i < found.size(); ++i) take(candidates_[next + i], std::move(found[i]));
      tell(std::ssize(candidates_) + std::ssize(partly_) - static_cast<std::int64_t>(next + found.size()));
    }
    for (; next < candidates_.size(); ++next) ++(candidates_[next].seconds > worst() ? result_.bounded : result_.left);
    recompute_partly();
    simulate_estimated();
    return std::move(result_);
  }

 private:
  // in_parallel(). Its threads' processor time counts, so that other programs on the machine change no result.
  template <class F>
  void timed(std::size_t count, const F& f) {
    const std::clock_t start = std::clock();
    in_parallel(count, f);
    const double threads = std::min(static_cast<double>(count), static_cast<double>(options_.threads));
    spent_ += static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / threads;
  }

  // Meshes in their order, for half of the time.
  void list_candidates() {
    Bounds bounds(machine_, deck_, options_.ranks);
    std::vector<std::int64_t> sizes;
    for (const MeshDeck& mesh : meshes_) sizes.push_back(std::ssize(choices_of(deck_, mesh)));
    result_.layouts = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    constexpr std::size_t together = 64;
    std::size_t next = 0;
    for (; next < meshes_.size() && (next == 0 || spent_ < options_.seconds / 2); next += together) {
      std::vector<std::vector<Candidate>> lists(std::min(together, meshes_.size() - next));
      timed(lists.size(), [&](std::size_t m) { lists[m] = bounds.on_mesh(next + m, meshes_[next + m]); });
      for (std::size_t m = 0; m < lists.size(); ++m) {
        result_.without_room += sizes[next + m] - std::ssize(lists[m]);
        candidates_.insert(candidates_.end(), lists[m].begin(), lists[m].end());
      }
      tell(result_.layouts - result_.without_room);
    }
    for (; next < sizes.size(); ++next) result_.left += sizes[next];
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.likely < b.likely; });
    const auto fits = std::stable_partition(candidates_.begin(), candidates_.end(), [](auto& c) { return !c.partly; });
    partly_.assign(fits, candidates_.end());
    candidates_.erase(fits, candidates_.end());
  }

  // Behind the others, for half of their time, as each takes several plans: candidates that nearly fit, with as few
  // blocks of a stage recomputed whole as have room.
  void recompute_partly() {
    std::stable_sort(partly_.begin(), partly_.end(), [](const auto& a, const auto& b) { return a.likely < b.likely; });
    constexpr std::size_t together = 4;
    const double end = spent_ + options_.seconds / 2;
    for (std::size_t next = 0; next < partly_.size(); next += together) {
      std::vector<Evaluation> found(std::min(together, partly_.size() - next), {&SearchResult::left});
      if (spent_ < end) timed(found.size(), [&](std::size_t i) { found[i] = evaluate(partly_[next + i], false); });
      for (std::size_t i = 0; i < found.size(); ++i) take(partly_[next + i], std::move(found[i]));
      tell(std::ssize(partly_) - static_cast<std::int64_t>(next + found.size()));
    }
  }

  // Of each number of stages those that need least by their bound, with the one that needs least of all first, until
  // one has room: then something is found however short the time is, and bounds the others. Those before it come again.
  void evaluate_smallest() {
    std::map<std::pair<std::int64_t, std::int64_t>, const Candidate*> smallest;  // by pp and ep
    for (const Candidate& c : candidates_) {
      const MeshDeck& mesh = meshes_[c.mesh];
      const Candidate*& least = smallest[{mesh.pp, mesh.ep}];
      if (!least || c.bytes < least->bytes) least = &c;
    }
    std::vector<const Candidate*> order;
    for (const auto& [place, c] : smallest) order.push_back(c);
    std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->bytes < b->bytes; });
    for (const Candidate* c : order) {
      std::optional<Evaluation> found;
      timed(1, [&](std::size_t) { found = evaluate(*c, false); });
      if (!found->outcome && found->count) continue;
      take(*c, std::move(*found));
      candidates_.erase(candidates_.begin() + (c - candidates_.data()));
      return;
    }
  }

  // Those whose estimate is near the best, in its order; the first also where time is up.
  void simulate_estimated() {
    std::stable_sort(estimated_.begin(), estimated_.end(),
                     [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    constexpr std::size_t together = 2;
    for (std::size_t next = 0; next < estimated_.size(); next += together) {
      const std::size_t count = std::min(together, estimated_.size() - next);
      const bool in_time = next == 0 || spent_ < 2 * options_.seconds;
      std::vector<Evaluation> found(count);
      timed(count, [&](std::size_t i) {
        const Estimated& e = estimated_[next + i];
        found[i] = e.seconds / close > worst() ? Evaluation{&SearchResult::bounded}
                   : in_time                   ? evaluate(e.candidate, true)
                                               : Evaluation{&SearchResult::left};
      });
      for (std::size_t i = 0; i < count; ++i) {
        const double seconds = estimated_[next + i].seconds;
        seen_.erase(seen_.find(close * seconds));
        std::erase_if(drawn_out_, [&](const Outcome& o) { return o.time.seconds == seconds; });
        take(estimated_[next + i].candidate, std::move(found[i]));
      }
      tell(0);
    }
  }

  // What is known so far, to whoever wants to know: ten times a second of processor time at most.
  void tell(std::int64_t left) {
    if (!options_.tell || std::clock() < next_told_) return;
    next_told_ = std::clock() + CLOCKS_PER_SEC / 10;
    SearchResult so_far = result_;
    so_far.left = left;
    for (const Outcome& outcome : drawn_out_) keep_best(so_far.best, outcome, options_.best);
    options_.tell(so_far);
  }

  // Seconds of the last that is to be kept: of those that are known, with estimates at their longest.
  double worst() const {
    const auto kept = static_cast<std::size_t>(options_.best);
    return seen_.size() < kept ? INFINITY : *std::next(seen_.begin(), options_.best - 1);
  }

  // What became of a candidate; nothing yet where its step is an estimate.
  struct Evaluation {
    std::int64_t SearchResult::*count = nullptr;
    std::optional<Outcome> outcome = {};  // of an estimate, drawn out
    double estimate = 0;
    bool nearly = false;  // it may fit with some blocks recomputed whole
  };
  // `whole`: all microbatches of its step are simulated, however many.
  Evaluation evaluate(const Candidate& candidate, bool whole) {
    if (!whole && candidate.seconds > worst()) return {&SearchResult::bounded};
    if (candidate.partly) return partly_recomputed(candidate, whole);
    if (rooms_.is_full(candidate) || !has_room_at_least(candidate)) return {&SearchResult::without_room};
    const MeshDeck& mesh = meshes_[candidate.mesh];
    const Deck deck = with_choice(deck_, mesh, candidate.choice);
    const std::optional<RunSetup> few = setup_of(of_few_microbatches(deck));
    if (!few) return {&SearchResult::refused};
    Evaluation found{&SearchResult::without_room};
    const auto bytes = static_cast<double>(bytes_of_ends(machine_, *few)), usable = static_cast<double>(usable_);
    if (bytes <= usable) found = evaluated(deck, whole);
    if (found.count == &SearchResult::without_room) {
      rooms_.set_full(candidate);
      found.nearly = !whole && nearly_fits(candidate.choice, deck_, mesh, bytes, usable);
    }
    return found;
  }
  Evaluation evaluated(const Deck& deck, bool whole) {
    return !whole && is_long(deck) ? estimated(deck) : simulated(deck);
  }
  std::optional<std::size_t> bytes_of(const Deck& deck) {
    const std::optional<RunSetup> few = setup_of(of_few_microbatches(deck));
    return few ? std::optional(bytes_of_ends(machine_, *few)) : std::nullopt;
  }
  Evaluation partly_recomputed(const Candidate& candidate, bool whole) {
    Deck deck = with_choice(deck_, meshes_[candidate.mesh], candidate.choice), full = deck;
    full.train.recompute = Recompute::full;
    const std::optional<std::size_t> most = bytes_of(deck), least = bytes_of(full);
    if (!most || !least) return {&SearchResult::refused};
    if (*least > usable_) return {&SearchResult::without_room};
    const double over =
        *most > usable_ ? static_cast<double>(*most - usable_) / static_cast<double>(*most - *least) : 0;
    if (!whole && candidate.seconds + over * candidate.again > worst()) return {&SearchResult::bounded};
    const std::int64_t layers = layers_of_stage(deck);
    const auto first = static_cast<std::int64_t>(std::ceil(over * static_cast<double>(layers)));
    for (std::int64_t n = first; n < std::min(first + 3, layers); ++n) {
      deck.train.recompute_full_layers = n;
      if (bytes_of(deck).value_or(usable_ + 1) > usable_) continue;
      if (Evaluation found = evaluated(deck, whole); found.count != &SearchResult::without_room) return found;
    }
    return {&SearchResult::without_room};
  }

  // None where the memory that it needs isn't there: then no step is simulated.
  std::optional<Outcome> outcome_with_room(const RunSetup& setup) const {
    RankMemory memory = memory_on(machine_, setup);
    if (memory.total() > usable_) return std::nullopt;
    return Outcome{setup.deck, predict(machine_, setup), std::move(memory), usable_};
  }

  Evaluation simulated(const Deck& deck) {
    const std::optional<RunSetup> setup = setup_of(deck);
    if (!setup) return {&SearchResult::refused};
    std::optional<Outcome> outcome = outcome_with_room(*setup);
    if (!outcome) return {&SearchResult::without_room};
    return {&SearchResult::simulated, std::move(outcome)};
  }

  // Microbatches with which a pipeline is full for a while; a step of more repeats what it does then.
  static std::int64_t filling(const Deck& deck) { return std::max<std::int64_t>(2 * deck.mesh.pp, 4); }
  static bool is_long(const Deck& deck) { return microbatches_of(deck) > 4 * filling(deck); }

  // From steps of fewer microbatches.
  Evaluation estimated(const Deck& deck) {
    const std::int64_t fewer = filling(deck), more = fewer * 3 / 2;
    const std::optional<RunSetup> first = setup_of(of_microbatches(deck, fewer)),
                                  second = setup_of(of_microbatches(deck, more));
    if (!first || !second) return simulated(deck);
    std::optional<Outcome> outcome = outcome_with_room(*second);
    if (!outcome) return {&SearchResult::without_room};
    const double longer = outcome->time.seconds;
    const double one = (longer - predict(machine_, *first).seconds) / static_cast<double>(more - fewer);
    const double seconds = longer + static_cast<double>(microbatches_of(deck) - more) * one;
    if (seconds / close > worst()) return {&SearchResult::bounded};
    return {nullptr, drawn_out(std::move(*outcome), deck, seconds), seconds};
  }

  static Deck of_microbatches(Deck deck, std::int64_t microbatches) {
    deck.train.batch_ramp.clear();
    deck.train.global_batch_sequences =
        deck.mesh.dp_replicate * deck.mesh.dp_shard * deck.train.microbatch_sequences * microbatches;
    return deck;
  }

  // Needs no more memory than the deck, and mostly as much: what fills the pipeline twice.
  static Deck of_few_microbatches(Deck deck) {
    const std::int64_t unit = deck.mesh.dp_replicate * deck.mesh.dp_shard * deck.train.microbatch_sequences;
    deck.train.batch_ramp.clear();
    const std::int64_t most = 2 * deck.mesh.pp * deck.schedule.virtual_stages;
    if (deck.train.global_batch_sequences / unit > most && deck.mesh.pp > 1)
      deck.train.global_batch_sequences = unit * most;
    else if (deck.mesh.pp == 1)
      deck.train.global_batch_sequences = std::min(deck.train.global_batch_sequences, 2 * unit);
    return deck;
  }

  // None where the deck isn't legal.
  std::optional<RunSetup> setup_of(Deck deck) {
    try {
      check_deck(deck, options_.ranks);
    } catch (const BadInput&) {
      return {};
    }
    return on_devices(make_setup(deck, 0, schedules_.of(deck), asked_kernels(), &units_), machine_.capability);
  }

  // Bytes of the choice that needs least on the candidate's mesh with its schedule and dispatch.
  std::optional<std::size_t> least_bytes(const Candidate& candidate) {
    const MeshDeck& mesh = meshes_[candidate.mesh];
    Choice least = candidate.choice;
    least.microbatch = 1;
    least.recompute = Recompute::full;
    least.zero_stage = mesh.dp_shard * mesh.cp > 1 ? 3 : 0;
    const std::optional<RunSetup> setup = setup_of(of_few_microbatches(with_choice(deck_, mesh, least)));
    return setup ? std::optional(bytes_of_ends(machine_, *setup)) : std::nullopt;
  }

  // Whether the choice that needs least has room on the mesh, with the schedule and with 1F1B: others need about as
  // much, or more. Where it isn't legal nothing is said.
  bool has_room_at_least(const Candidate& candidate) {
    constexpr double less = 1.1;  // that another schedule or ZeRO stage may need of a small model, as a factor
    const auto least = [&](const Candidate& c) {
      return rooms_.least(c, [&](const auto& x) { return least_bytes(x); });
    };
    Candidate plain = candidate;
    plain.choice.schedule = ScheduleName::one_f_one_b;
    plain.choice.chunks = 1;
    plain.choice.overlap = Overlap::none;
    if (const auto bytes = least(plain); bytes && static_cast<double>(*bytes) > less * static_cast<double>(usable_))
      return false;
    const auto bytes = least(candidate);
    return !bytes || static_cast<double>(*bytes) <= less * static_cast<double>(usable_);
  }

  void take(const Candidate& candidate, Evaluation evaluation) {
    if (evaluation.nearly) {
      partly_.push_back(candidate);
      partly_.back().partly = true;
      return;
    }
    if (!evaluation.count) {
      estimated_.push_back({candidate, evaluation.estimate});
      seen_.insert(close * evaluation.estimate);
      if (options_.tell) keep_best(drawn_out_, std::move(*evaluation.outcome), options_.best);
      return;
    }
    ++(result_.*evaluation.count);
    if (!evaluation.outcome) return;
    seen_.insert(evaluation.outcome->time.seconds);
    keep_best(result_.best, std::move(*evaluation.outcome), options_.best);
  }

  const Machine& machine_;
  const Deck& deck_;
  SearchOptions options_;
  std::size_t usable_;  // bytes of a rank
  std::vector<Unit> units_;
  std::vector<MeshDeck> meshes_;
  std::vector<Candidate> candidates_, partly_;
  std::vector<Estimated> estimated_;
  std::vector<Outcome> drawn_out_;  // the best of them, for tell()
  std::clock_t next_told_ = 0;
  double spent_ = 0;            // seconds of a thread in candidates
  std::multiset<double> seen_;  // seconds of steps that fit; estimates times `close`
  SearchResult result_;
  Schedules schedules_;
  Rooms rooms_;
};

}  // namespace

SearchResult search(const Machine& machine, const Deck& resolved, const SearchOptions& options) {
  return Search(machine, resolved, options).run();
}

}  // namespace forge
