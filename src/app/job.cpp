#include "app/job.hpp"

#include <omp.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "app/device_fit.hpp"
#include "app/directory_deck.hpp"
#include "app/trained_model.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "checkpoint/torch_optimizer.hpp"
#include "config/path_hint.hpp"
#include "config/yaml.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "device/threads.hpp"
#include "layout/local_units.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/from_deck.hpp"
#include "train/restart.hpp"

namespace forge {

namespace {

constexpr std::int64_t most_ranks = 1 << 20;

// A file that was meant for another place gets one error, not what YAML makes of it. Without a word in it, a deck may
// still have all its keys from options.
void refuse_what_is_no_deck(const std::string& file, const std::string& text, bool has_options) {
  std::string what;
  const std::size_t at = find_control_character(text);
  if (starts_as_utf16(text)) {
    what = "UTF-16 text";
  } else if (at != std::string::npos) {
    what = formatted("binary (byte 0x%02x at offset %zu)", static_cast<unsigned char>(text[at]), at);
  } else if (text.size() > most_yaml_bytes) {
    what = "longer than " + std::to_string(most_yaml_bytes) + " bytes";
  } else if (!has_options && text.find_first_not_of(" \t\r\n") == std::string::npos) {
    what = "empty";
  }
  if (!what.empty())
    throw BadInput(file + " is no deck: it is " + what +
                   "; legal: a YAML file in UTF-8, sections of keys, which `forge help keys` lists. Token files are "
                   "named in data.files, checkpoints by --restart or checkpoint.model_from");
}

// A deck is read more than once, by every rank: pipes and devices would wait, or be empty the next time.
std::string read_text(const std::string& file) {
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(file, unknown);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw BadInput(file + " is no deck: it is " +
                   (std::filesystem::is_character_file(status) ? "a device" : "a pipe or a socket") +
                   "; legal: a YAML file, which each rank can read as often as it wants");
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    const int error = errno;
    throw BadInput("cannot open the deck " + file + ": " + std::strerror(error) + path_hint(file, PathUse::file));
  }
  std::string text(most_yaml_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(to_size(in.gcount()));
  if (in.bad()) throw IoFailed("reading the deck " + file + " failed");
  return text;
}

// `world_size`: 0: as many ranks as the deck's mesh asks for.
Deck read_deck_of(const CommandLine& line, Needs needs, int world_size = 0) {
  const std::string& file = line.inputs.front();
  const std::vector<std::string> options = settings_of(line);
  if (stands_for_deck(line)) return deck_of_directory(line, options, needs, world_size);
  const std::string text = read_text(file);
  refuse_what_is_no_deck(file, text, !options.empty());
  return read_deck(text, file, options, needs);
}

// srun -N alone starts one rank on each node.
void check_srun(const MeshDeck& mesh, const World& world) {
  if (!std::getenv("SLURM_STEP_ID") || mesh.dp_shard == -1) return;  // -1 takes what there is
  const std::int64_t asked = ranks_of(mesh);
  if (world.size() >= asked || asked % world.nodes() != 0) return;
  throw BadInput("the deck's mesh has " + counted(asked, "rank") + ", but srun started " +
                 counted(world.size(), "rank") + " on " + counted(world.nodes(), "node") +
                 "; the option that is missing: --ntasks-per-node=" + std::to_string(asked / world.nodes()));
}

}  // namespace

Deadlines deadlines_of(const MachineDeck& machine) {
  return {static_cast<double>(machine.first_deadline_seconds), static_cast<double>(machine.deadline_seconds)};
}

Deadlines deadlines_of(const CommandLine& line) {
  if ((line.verb == Verb::generate && line.prompts.empty()) || line.verb == Verb::replay) return {0, 0};
  if (line.verb == Verb::verify || line.verb == Verb::calibrate || line.verb == Verb::check) return {};
  try {
    return deadlines_of(read_deck_of(line, Needs::training).machine);
  } catch (const Error&) {  // load_deck() will say what is wrong, once for all ranks
    return {};
  }
}

Deck load_deck(const CommandLine& line, Needs needs, const World& world) {
  Deck deck = read_deck_of(line, needs, world.size());
  world.watchdog().set(deadlines_of(deck.machine));
  check_srun(deck.mesh, world);
  deck.mesh.node_ranks = world.node_ranks();
  check_deck(deck, world.size(), needs);
  return deck;
}

Deck load_deck(const CommandLine& line, Needs needs, int world_size, int node_ranks) {
  Deck deck = read_deck_of(line, needs, world_size);
  deck.mesh.node_ranks = node_ranks;
  if (world_size == 0) {  // a mesh beyond every machine is told as one of a single rank
    const std::int64_t asked = ranks_of(deck.mesh);
    world_size = asked >= 1 && asked <= most_ranks ? static_cast<int>(asked) : 1;
  }
  check_deck(deck, world_size, needs);
  return deck;
}

namespace {

// The first number of a variable, as of "4,2"; 0 where there is none. Refuses what machine.threads doesn't take.
int threads_from(const char* variable) {
  constexpr int most = 4096;
  const char* const text = std::getenv(variable);
  if (!text) return 0;
  const std::string_view digits = text + std::strspn(text, " \t+");
  std::int64_t threads = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), threads);
  if (error == std::errc::result_out_of_range || threads > most)
    throw BadInput(std::string(variable) + " = " + std::string(text).substr(0, 40) +
                   ": is out of range for the threads of a rank; legal: 1 to " + std::to_string(most));
  return static_cast<int>(std::max<std::int64_t>(threads, 0));
}

}  // namespace

int threads_of(const Deck& deck, const World& world) {
  if (deck.machine.threads > 0) return static_cast<int>(deck.machine.threads);
  if (threads_from("OMP_NUM_THREADS") > 0) return std::max(1, omp_get_max_threads());
  if (const int cpus = threads_from("SLURM_CPUS_PER_TASK"); cpus > 0) return cpus;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / world.local_size());
}

int start_threads_of(const Deck& deck, const World& world) {
  const int threads = threads_of(deck, world);
  if (std::string(device_info().kind) == "cpu") start_threads(threads);
  return threads;
}

namespace {

int prepared_threads(const Deck& deck, const World& world) {
  world.watchdog().start_other(0, "communicators");
  inject_fault(world.rank(), "mesh");
  return threads_of(deck, world);
}

}  // namespace

void prepare_device(RunSetup& setup, RunKind kind, const World& world) {
  world.watchdog().start_other(0, "device");
  choose_device(world);
  setup = on_devices(std::move(setup), device_info().capability);
  refuse_what_the_device_lacks(setup);
  refuse_what_does_not_fit(setup, kind, world);
  start_threads_of(setup.deck, world);
}

template <class T>
Job<T>::Job(const RunSetup& run, RunKind kind, const World& world, bool restarts)
    : setup(run),
      threads(prepared_threads(run.deck, world)),
      mesh(world.make_world(), run.mesh, groups_of(run)),
      memory(planned_memory(run, kind)) {
  world.watchdog().start_other(0, "connections");
  mesh.connect();
  world.watchdog().start_other(0, "parameters");
  session = std::make_unique<Session<T>>(setup, memory.total(), kind, mesh, threads);
  session->set_heartbeat(&world.watchdog().heartbeat());
  if (restarts) return;
  load_parameters();
  if (kind != RunKind::training || setup.deck.checkpoint.optimizer_from.empty()) return;
  updates = load_optimizer(setup.deck, session_state(*session, StateUse::read, {false, true}), session->stream(),
                           session->heartbeat());
  notes.push_back("optimizer's state of " + setup.deck.checkpoint.optimizer_from + ", behind " +
                  counted(updates, "update"));
}

template <class T>
void Job<T>::load_parameters() {
  const Deck& deck = setup.deck;
  Stream& stream = session->stream();
  std::vector<double> biases;
  if (!deck.checkpoint.model_from.empty()) {
    parameters = load_model(*session, deck, notes);
    biases = session->routers().read_biases(stream);
  } else if (deck.model.load_weights) {
    session->load([&](ParameterStorage<T>& storage, Stream&) {
      load_hf_tensors(deck.model.hf, setup.spec, deck.train.seed, storage, stream, replicas_of(mesh),
                      session->heartbeat());
      start_adapters(deck, setup.spec, storage, stream, replicas_of(mesh), session->heartbeat());
    });
    biases = load_router_biases(deck.model.hf, setup.spec, &mesh.world());
    session->routers().set_biases(stream, biases);
    if (mesh.rank() == 0) parameters = model_hf_text(deck, setup.spec, notes) + adapter_text(deck);
  } else {
    parameters = initial_values_text(deck) + (deck.model.adapter.load.empty() ? "" : adapter_text(deck));
    session->initialise();
    if (deck.model.adapter.load.empty()) return;
    session->load([&](ParameterStorage<T>& storage, Stream&) {
      start_adapters(deck, setup.spec, storage, stream, replicas_of(mesh), session->heartbeat());
    });
  }
  refuse_not_finite(session->storage(), biases, stream, session->arena(), deck);
}

template <class T>
WholeTensors<T> Job<T>::whole_tensors() {
  return {session->storage(), mesh, session->heartbeat()};
}

FORGE_INSTANTIATE_CLASS(Job);

}  // namespace forge
