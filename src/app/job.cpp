#include "app/job.hpp"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "checkpoint/hf_tensors.hpp"
#include "config/check.hpp"
#include "config/write.hpp"
#include "config/yaml.hpp"

namespace forge {

namespace {

std::string read_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw BadInput("cannot open the deck " + file + "; give the path of a YAML file");
  std::string text(most_yaml_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (in.bad()) throw IoFailed("reading the deck " + file + " failed");
  return text;
}

}  // namespace

Deck load_deck(const CommandLine& line, Needs needs, int world_size) {
  const std::string& file = line.inputs.front();
  Deck deck = read_deck(read_text(file), file, line.set, needs);
  check_deck(deck, world_size, needs);
  return deck;
}

void agree_on_deck(const Deck& deck, Environment& environment) {
  if (environment.size() == 1) return;
  const auto world = environment.make_world();
  const auto hash = static_cast<std::int64_t>(hash_of(write_deck(deck)));
  const auto hashes = world->gather_host(std::to_string(hash));
  const auto other =
      std::find_if(hashes.begin(), hashes.end(), [&](const std::string& h) { return h != hashes.front(); });
  if (other != hashes.end())
    throw BadInput("the resolved deck of rank " + std::to_string(other - hashes.begin()) +
                   " differs from that of rank 0; every rank must read the same files with the same options");
}

int threads_of(const Deck& deck, const Environment& environment) {
  if (deck.machine.threads > 0) return static_cast<int>(deck.machine.threads);
  if (std::getenv("OMP_NUM_THREADS")) return std::max(1, omp_get_max_threads());
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / environment.local_size());
}

template <class T>
void load_parameters(const Deck& deck, ParameterStorage<T>& storage, Stream& stream) {
  if (deck.model.load_weights)
    load_hf_tensors(deck.model.hf, storage, stream);
  else
    storage.initialise(stream, deck.train.seed);
}

namespace {

int prepared_threads(const Deck& deck, const Environment& environment) {
  select_device(environment.local_rank());
  return threads_of(deck, environment);
}

}  // namespace

template <class T>
Job<T>::Job(const RunSetup& run, RunKind kind, Environment& environment)
    : setup(run),
      mesh(environment),
      memory(plan_memory(run.buffers, run.units, run.slots,
                         static_cast<std::size_t>(run.deck.machine.workspace_mib) << 20, kind)),
      threads(prepared_threads(run.deck, environment)) {
  session = std::make_unique<Session<T>>(setup, memory.total(),
                                         StorageKind{kind != RunKind::evaluation, kind == RunKind::training},
                                         mesh.replicas(), mesh.background(), threads);
  load_parameters(setup.deck, session->storage(), session->stream());
}

#define FORGE_INSTANTIATE(T)                                                    \
  template void load_parameters<T>(const Deck&, ParameterStorage<T>&, Stream&); \
  template struct Job<T>;
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
