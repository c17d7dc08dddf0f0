#include "run_threads.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "comm/thread_communicator.hpp"
#include "config/write_deck.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "device/device_memory.hpp"
#include "layout/mesh_shape.hpp"

namespace forge::test {

namespace {

constexpr std::size_t most_lanes = 8, most_failures = 3;
constexpr std::int64_t most_ranks = 64;  // at a time, so that memory stays bounded

// Ranks that run now. A layout of more ranks than there are places runs alone.
class Places {
 public:
  class Taken {
   public:
    Taken(Places& places, std::int64_t ranks) : places_(places), ranks_(ranks) {
      std::unique_lock lock(places_.mutex_);
      places_.changed_.wait(lock, [&] { return places_.taken_ == 0 || places_.taken_ + ranks_ <= most_ranks; });
      places_.taken_ += ranks_;
    }
    ~Taken() {
      {
        std::lock_guard lock(places_.mutex_);
        places_.taken_ -= ranks_;
      }
      places_.changed_.notify_all();
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

   private:
    Places& places_;
    std::int64_t ranks_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t taken_ = 0;
};

}  // namespace

LayoutResult run_threads(const Deck& deck, const RunOptions& options) {
  const auto ranks = static_cast<std::size_t>(ranks_of(deck.mesh));
  std::vector<LayoutResult> results(ranks);
  run_ranks(static_cast<int>(ranks), [&](Communicator& world) {
    results[static_cast<std::size_t>(world.rank())] = run_layout(world.duplicate(), deck, options);
  });
  return merged(std::move(results));
}

Tensors initial_tensors(const Deck& deck) {
  Tensors tensors;
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    Tensors whole = initial_tensors(world.duplicate(), deck);
    if (world.rank() == 0) tensors = std::move(whole);
  });
  return tensors;
}

Deck one_rank(const Deck& deck) {
  const Deck defaults;
  Deck one = deck;
  one.mesh = defaults.mesh;
  one.mesh.dp_shard = 1;
  one.schedule = defaults.schedule;
  // The auxiliary loss over a microbatch's tokens depends on which those are.
  if (deck.model.auxiliary_loss_scope == AuxiliaryScope::sequence) one.train.microbatch_sequences = 1;
  one.train.recompute = defaults.train.recompute;
  one.train.recompute_full_layers = defaults.train.recompute_full_layers;
  one.train.zero_stage = defaults.train.zero_stage;
  one.train.accumulate = defaults.train.accumulate;
  one.train.reduction = defaults.train.reduction;
  one.train.gather = defaults.train.gather;
  one.train.fp8_gather = defaults.train.fp8_gather;
  return one;
}

const LayoutResult& References::of(const Deck& deck, std::int64_t train_steps) {
  Deck one = one_rank(deck);
  Entry* entry = nullptr;
  {
    std::lock_guard lock(mutex_);
    const bool fp64 = one.train.fp8_carrier == Fp8Carrier::fp64;  // no key of the deck
    auto& place = entries_[std::to_string(train_steps) + (fp64 ? " fp64\n" : "\n") + write_deck(one)];
    if (!place) place = std::make_unique<Entry>();
    entry = place.get();
  }
  std::call_once(entry->once, [&] {
    if (const auto rule = illegality(one); !rule.empty()) throw Error("no reference: " + rule);
    RunOptions options;
    options.train_steps = train_steps;
    entry->result = run_threads(one, options);
    if (const auto text = triviality(entry->result, one); !text.empty())
      entry->result.problem = "the reference is no good: " + text;
  });
  if (!entry->result.problem.empty()) throw Error("one rank: " + entry->result.problem);
  return entry->result;
}

std::string failures_of(const std::vector<LayoutCase>& cases, std::size_t expected,
                        const std::function<std::string(const LayoutCase&)>& check) {
  const bool verbose = std::getenv("FORGE_LAYOUTS_VERBOSE") != nullptr;
  std::atomic<std::size_t> next{0}, failed{0}, checked{0};
  std::mutex mutex;
  Places places;
  std::string failures;
  auto run_lane = [&] {
    for (std::size_t i = next++; i < cases.size() && failed < most_failures; i = next++) {
      const std::string text = cases[i].name + ", number " + std::to_string(i) + ": " + text_of(cases[i].deck);
      if (verbose) std::fprintf(stderr, "%s\n", text.c_str());
      std::string wrong;
      try {
        const Places::Taken taken(places, ranks_of(cases[i].deck.mesh));
        wrong = check(cases[i]);
        ++checked;
      } catch (const std::exception& error) {
        wrong = std::string("threw ") + error.what();
      }
      if (wrong.empty()) continue;
      std::lock_guard lock(mutex);
      if (failed++ < most_failures) failures += text + ": " + wrong + "\n";
    }
  };
  {
    // Where ranks have devices, a device is one layout's at a time.
    const std::size_t lanes = std::string_view(device_info().kind) == "cpu" ? most_lanes : 1;
    std::vector<std::jthread> threads;
    for (std::size_t lane = 0; lane < lanes; ++lane) threads.emplace_back(run_lane);
  }
  if (failures.empty() && (checked != expected || cases.size() != expected))
    failures = std::to_string(cases.size()) + " cases, " + std::to_string(checked) + " of them checked, and " +
               std::to_string(expected) + " are expected\n";
  return failures;
}

std::string equals_one_rank(const Deck& deck, References& references, std::int64_t train_steps, double training_bound) {
  Deck checked = deck;
  if (const auto rule = illegality(checked); !rule.empty()) return "is refused: " + rule;
  const LayoutResult& one = references.of(checked, train_steps);
  RunOptions options;
  options.train_steps = train_steps;
  options.one = &one;
  // The collection of whole tensors, which asks for many small messages, is tested with every sixteenth deck.
  options.whole = hash_of(text_of(checked)) % 16 == 0;
  const LayoutResult result = run_threads(checked, options);
  if (result.routing.size() != one.routing.size()) return "not all rows are routed";
  const std::string wrong = difference(result, one, 1);
  return wrong.empty() && train_steps > 0 ? training_difference(result, one, training_bound) : wrong;
}

}  // namespace forge::test
