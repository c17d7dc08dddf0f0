#include <cstdio>
#include <filesystem>

#include "app/checks.hpp"
#include "app/common_facts.hpp"
#include "app/device_fit.hpp"
#include "app/job.hpp"
#include "app/outputs.hpp"
#include "app/verbs.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "schedule/check_deck.hpp"

namespace forge {

namespace {

// Without a deck: all ranks share a tiny model.
Deck deck_of_check(const CommandLine& line, const World& world) {
  if (!line.inputs.empty()) return load_deck(line, Needs::training, world);
  Deck any;
  any.mesh.dp_shard = world.size();
  any.train.global_batch_sequences = world.size();
  Deck deck = tiny_deck(any, "tokens.bin", false);
  deck.output.directory = ".";
  deck.mesh.node_ranks = world.node_ranks();
  check_deck(deck, world.size());
  world.watchdog().set(deadlines_of(deck.machine));
  return deck;
}

// Where the deck's checkpoints go, else its run; of a directory that isn't there the nearest one above it.
std::string directory_of(const Deck& deck) {
  namespace fs = std::filesystem;
  fs::path path = deck.checkpoint.directory.empty() ? deck.output.directory : deck.checkpoint.directory;
  std::error_code unknown;
  while (!path.empty() && !fs::is_directory(path, unknown)) path = path.parent_path();
  return path.empty() ? "." : path.string();
}

void check_start(Checks& checks, const Deck& deck) {
  try {
    agree_on_start(deck, checks.world());
    checks.add("start", Verdict::ok, "the same program, environment, deck and weights on all ranks");
  } catch (const BadInput& differs) {  // on all ranks
    checks.add("start", Verdict::wrong, differs.what());
  }
}

void say_end(const CommandLine& line, const World& world, const std::vector<std::string>& nodes) {
  if (world.rank() != 0) return;
  if (!nodes.empty()) std::printf("nodes to leave out: %s\n", joined(nodes).c_str());
  std::string text;
  for (const std::string& node : nodes) text += node + "\n";
  if (!line.output.empty()) write_text_file(line.output, text);
}

}  // namespace

void run_check(const CommandLine& line, const World& world) {
  const Deck deck = deck_of_check(line, world);
  std::list<OutputLock> locks;
  if (world.rank() == 0) {
    check_outputs(line, deck);
    locks = lock_outputs(line);
  }
  const std::optional<Machine> machine =
      line.machine.empty() ? std::nullopt : std::optional(read_machine(line.machine));
  world.watchdog().start_other(0, "checks");
  choose_device(world);
  start_threads_of(deck, world);
  Checks checks(world, line.slow);
  if (world.rank() == 0)
    std::printf("%s on %s; slow: more than %g times the median\n", counted(world.size(), "rank").c_str(),
                counted(world.nodes(), "node").c_str(), line.slow);
  check_start(checks, deck);
  check_limits(checks, deck);
  check_device(checks, deck);
  check_links(checks, deck, machine ? &*machine : nullptr);
  {
    CheckedDirectory directory(checks, directory_of(deck));
    if (directory.shared()) directory.check();
    check_step(checks, deck, directory);
    checks.ranks().barrier();
  }
  const auto [failed, made] = checks.failed_and_made();
  say_end(line, world, checks.nodes_to_leave_out());
  checks.ranks().barrier();  // the error of one rank ends the others
  if (failed > 0)
    throw Error(std::to_string(failed) + " of " + counted(made, "check") + " found something slow or wrong",
                ExitCode::check_failed);
  if (world.rank() == 0) std::printf("%s, nothing slow or wrong\n", counted(made, "check").c_str());
}

}  // namespace forge
