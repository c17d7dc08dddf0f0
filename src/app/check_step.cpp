#include <algorithm>
#include <cmath>

#include "app/checks.hpp"
#include "app/job.hpp"
#include "app/open_data.hpp"
#include "comm/replay_communicator.hpp"
#include "config/head_ranks.hpp"
#include "config/schedule_name.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/from_deck.hpp"
#include "train/batch_feed.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

constexpr std::int64_t vocabulary = 256;

struct StepOfDeck {
  double loss = 0, norm = 0;
};

StepOfDeck step_of(const Deck& deck, const World& world) {
  RunSetup setup = make_setup(deck, world.rank());
  const TrainingData data = open_data(setup, world);
  prepare_device(setup, RunKind::gradients, world);
  Job<double> job(setup, RunKind::gradients, world);
  const FirstBatch first(setup, data, job.mesh);
  BatchFeed feed(first.batch);
  job.session->compute_gradients(feed, 1, first.labels);
  const StepResult result = job.session->read_step(first.labels);
  return {result.loss, result.grad_norm};
}

void write_tokens(const std::string& path, const Deck& deck) {
  std::string bytes;
  for (std::int64_t i = 0; i <= deck.train.global_batch_sequences * deck.train.sequence_tokens; ++i)
    bytes += {static_cast<char>(hash_of(std::to_string(i)) % vocabulary), '\0'};
  write_text_file(path, bytes);
}

void give_experts(ModelDeck& model, const MeshDeck& mesh, bool has_experts) {
  if (!has_experts) return;
  model.experts = std::max<std::int64_t>(4, 2 * mesh.ep);
  model.experts_per_token = 2;
  model.expert_ffn = 16 * std::max<std::int64_t>(mesh.etp, mesh.tp);
}

}  // namespace

Deck tiny_deck(const Deck& deck, const std::string& tokens, bool alone) {
  Deck tiny;
  const MeshDeck& mesh = deck.mesh;
  ModelDeck& model = tiny.model;
  const std::int64_t chunks = std::max<std::int64_t>(deck.schedule.virtual_stages, chunks_of(deck.schedule.name));
  model.layers = std::max<std::int64_t>(2, mesh.pp * chunks);
  model.heads = std::max<std::int64_t>(2, mesh.tp * head_ranks(deck));
  model.width = 8 * model.heads;
  model.ffn = 16 * mesh.tp;
  model.vocabulary = std::max<std::int64_t>(vocabulary, mesh.tp);
  give_experts(model, mesh, deck.model.experts > 0);
  tiny.train.steps = 1;
  tiny.train.sequence_tokens = 8 * 2 * mesh.cp * mesh.tp;
  tiny.train.global_batch_sequences = mesh.dp_replicate * mesh.dp_shard * microbatches_of(deck);
  tiny.train.precision = PrecisionName::fp64;
  tiny.optimizer.learning_rate = 1e-3;
  tiny.data.files = {tokens};
  tiny.data.dtype = TokenType::uint16;
  tiny.output.directory = tokens + ".run";  // nothing is written there
  tiny.machine.threads = deck.machine.threads;
  if (alone) {
    tiny.mesh.dp_shard = 1;
    return tiny;
  }
  tiny.mesh = mesh;
  tiny.schedule.name = deck.schedule.name;
  tiny.schedule.virtual_stages = deck.schedule.virtual_stages;
  tiny.train.zero_stage = deck.train.zero_stage;
  return tiny;
}

void check_step(Checks& checks, const Deck& deck, const CheckedDirectory& directory) {
  const World& world = checks.world();
  const char* const name = "step";
  if (!directory.shared()) return checks.add(name, Verdict::untried, "its tokens would stand in the directory");
  const std::string tokens = directory.path() + "/tokens.bin";
  Deck own = tiny_deck(deck, tokens, false), alone = tiny_deck(deck, tokens, true);
  try {
    check_deck(own, world.size());
    check_deck(alone, 1);
  } catch (const BadInput& refused) {
    return checks.add(name, Verdict::untried, std::string("this mesh has no tiny model: ") + refused.what());
  }
  if (world.rank() == 0) write_tokens(tokens, own);
  checks.ranks().barrier();
  StepOfDeck one;
  if (world.rank() == 0) {
    const ReplayWorld here(world, 0, 1, 1, std::make_shared<ReplayWire>(WireKind::none));
    one = step_of(alone, here);
  }
  double numbers[] = {one.loss, one.norm};
  checks.ranks().max_host(numbers);
  const StepOfDeck all = step_of(own, world);
  const double error = std::max(std::abs(all.loss / numbers[0] - 1), std::abs(all.norm / numbers[1] - 1));
  checks.add(name, error < 1e-11 ? Verdict::ok : Verdict::wrong,
             formatted("in fp64: loss %.15g, gradient norm %.15g; one rank alone has %.15g and %.15g", all.loss,
                       all.norm, numbers[0], numbers[1]));
}

}  // namespace forge
