#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "app/device_fit.hpp"
#include "app/job.hpp"
#include "app/outputs.hpp"
#include "app/verbs.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/median.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "plan/placement.hpp"
#include "plan/traffic.hpp"
#include "predict/call_times.hpp"
#include "predict/rates.hpp"

namespace forge {

namespace {

std::string path_of(const CommandLine& line) {
  return line.output.empty() ? "inputs/machines/this.yaml" : line.output;
}

std::string list_of(const std::vector<double>& values, double unit) {
  std::ostringstream out;
  out.precision(4);
  for (std::size_t i = 0; i < values.size(); ++i) out << (i ? ", " : "[") << values[i] / unit;
  return out.str() + "]";
}

std::string rates_of(double launch, double bandwidth) {
  std::ostringstream out;
  out.precision(4);
  out << "{launch_us: " << launch * 1e6 << ", gb_s: " << bandwidth / 1e9 << "}";
  return out.str();
}

std::string type_text(const char* name, const MeasuredRates& r) {
  std::ostringstream out;
  out << "  " << name << ":\n    table:\n";
  for (const auto& [axis, values] : {std::pair{"m", &r.products.m}, {"n", &r.products.n}, {"k", &r.products.k}})
    out << "      " << axis << ": " << list_of(*values, 1) << "\n";
  for (const auto& [of, key] : {std::pair{ProductOf::output, "gflops"},
                                {ProductOf::input_gradient, "input_gradient_gflops"},
                                {ProductOf::weight_gradient, "weight_gradient_gflops"}})
    out << "      " << key << ": " << list_of(r.products.rates[to_size(of)], 1e9) << "\n";
  out << "    attention:\n      processor:\n";
  out << "        tokens: " << list_of(r.attention.tokens, 1) << "\n";
  out << "        forward_tflops: " << list_of(r.attention.forward, 1e12) << "\n";
  out << "        backward_tflops: " << list_of(r.attention.backward, 1e12) << "\n";
  return out.str();
}

std::string collective_text(Collective collective, const std::vector<ProtocolRates>& protocols) {
  std::string text;
  for (const ProtocolRates& p : protocols) {
    text += formatted("%s{latency_us: %.4g, rank_us: %.4g, gb_s: %.4g", text.empty() ? "" : ", ", p.latency * 1e6,
                      p.per_rank * 1e6, p.bandwidth / 1e9);
    text += p.own > 0 ? formatted(", own_gb_s: %.4g}", p.own / 1e9) : "}";
  }
  return "  " + key_of(collective) + ": [" + text + "]\n";
}

std::size_t memory_of_node() {
  std::ifstream in("/proc/meminfo");
  std::string name;
  std::size_t kib = 0;
  in >> name >> kib;
  return kib << 10;
}

// Seconds that the processors of this node were busy since it started, and those of this process.
struct ProcessorTime {
  double machine = 0, own = 0;
};
ProcessorTime processor_time() {
  ProcessorTime t;
  std::ifstream in("/proc/stat");
  std::string name;
  in >> name;
  // user, nice, system, idle, waiting for input or output, interrupts (two), taken by other machines of the host
  for (int i = 0; i < 8; ++i)
    if (double ticks = 0; in >> ticks && i != 3 && i != 4)
      t.machine += ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  for (const timeval& v : {usage.ru_utime, usage.ru_stime})
    t.own += static_cast<double>(v.tv_sec) + 1e-6 * static_cast<double>(v.tv_usec);
  return t;
}

// Fraction of the node's processors that other programs took while the measurements ran.
class OtherPrograms {
 public:
  double fraction(Communicator& ranks) const {
    const ProcessorTime end = processor_time();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - clock_).count();
    // Ranks may be threads of one process.
    double process[] = {static_cast<double>(getpid()), -static_cast<double>(getpid())}, own = end.own - start_.own;
    ranks.max_host(process);
    process[0] == -process[1] ? ranks.max_host({&own, 1}) : ranks.sum_host({&own, 1});
    const double cores = std::max(1u, std::thread::hardware_concurrency());
    return std::clamp((end.machine - start_.machine - own) / (cores * seconds), 0.0, 1.0);
  }

 private:
  ProcessorTime start_ = processor_time();
  std::chrono::steady_clock::time_point clock_ = std::chrono::steady_clock::now();
};

std::string percent(double fraction) {
  return std::to_string(std::lround(100 * fraction)) + " %";
}

// "measuring products in bf16 …": the first rank's, with the seconds so far.
class Progress {
 public:
  explicit Progress(bool speaks) : speaks_(speaks) {}
  void say(const std::string& text) const {
    if (!speaks_) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    std::printf("%5.0f s  %s\n", seconds.count(), text.c_str());
    std::fflush(stdout);
  }

 private:
  bool speaks_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::string machine_text(const World& world, int threads, const Progress& progress, Heartbeat& heartbeat) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::ostringstream out;
  out << "# Written by forge calibrate: every figure was measured, with " << threads << " threads a rank.\n";
  out << "description: " << device_info().name << ", " << cores << " cores; ranks on one node\n";
  out << "uncertainty: 0.2  # docs/choosing.md\n";
  out << "node: {ranks: " << world.size() << ", cores: " << cores << ", memory_mib: " << (memory_of_node() >> 20)
      << "}\n";
  std::string types;
  MeasuredRates last;
  for (const auto& [name, type] : {std::pair{"fp64", DType::f64}, {"bf16", DType::bf16}, {"fp32", DType::f32}}) {
    progress.say("products, attention and kernels over rows in " + std::string(name));
    last = measure_rates(type, threads, heartbeat);
    types += type_text(name, last);
  }
  out << "rows: {memory_gb_s: " << last.copy.bandwidth / 1e9
      << ", memory_share: 1, launch_us: " << last.copy.launch * 1e6 << "}\nkernels:  # in fp32\n";
  for (const auto& [name, rates] : last.kernels)
    out << "  " << name << ": " << rates_of(rates.launch, rates.bandwidth) << "\n";
  return out.str() + "compute:\n" + types;
}

void calibrate_processors(const CommandLine& line, const World& world) {
  const auto ranks = world.make_world();
  if (world.nodes() > 1)
    throw BadInput("forge calibrate measures one node; " + std::to_string(world.nodes()) + " were started");
  const std::string path = path_of(line);
  std::list<OutputLock> locks;
  if (world.rank() == 0) locks = lock_outputs(line);
  ranks->barrier();
  world.watchdog().start_other(0, "measurements");
  const Progress progress(world.rank() == 0);
  progress.say("measuring into " + path + ": one to three minutes on an idle machine");
  Heartbeat& heartbeat = world.watchdog().heartbeat();
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = std::max(1, cores / world.local_size());
  // As many ranks as there are processors for measure at the same time: they share memory and caches as in a step.
  const OtherPrograms others;
  std::string text;
  if (world.rank() < std::max(1, cores / threads)) text = machine_text(world, threads, progress, heartbeat);
  ranks->barrier();
  if (world.size() > 1) progress.say("collectives of " + std::to_string(world.size()) + " ranks");
  const auto collectives = measure_collectives(*ranks, heartbeat);
  const double disturbed = others.fraction(*ranks);
  if (world.rank() != 0) return;
  if (!collectives.empty()) text += "collectives:\n";
  for (const auto& [collective, rates] : collectives) text += collective_text(collective, {rates});
  if (disturbed > 0.05) {
    text = "# Other programs took " + percent(disturbed) + " of the processors meanwhile.\n" + text;
    std::fprintf(stderr,
                 "forge calibrate: other programs took %s of the processors meanwhile: the figures are too low\n",
                 percent(disturbed).c_str());
  }
  write_text_file(path, text);
  std::printf("%s: %s\n", path.c_str(), read_machine(path).description.c_str());
}

// The calls of the decks' steps on these ranks.
std::vector<CallTime> calls_of_decks(const CommandLine& line, const World& world, int ranks_per_node) {
  std::vector<CallTime> times;
  for (const std::string& deck : line.inputs) {
    CommandLine one = line;
    one.inputs = {deck};
    const RunSetup setup = make_setup(load_deck(one, Needs::training, world), world.rank());
    start_threads_of(setup.deck, world);
    world.watchdog().start_other(0, "communicators");
    const MeshGroups groups = groups_of(setup);
    Mesh mesh(world.make_world(), setup.mesh, groups);
    mesh.connect();
    world.watchdog().start_other(0, "measurements");
    const auto measured =
        measure_calls(mesh, distinct_calls(setup.buffers, setup.share, setup.schedule),
                      placements(setup.mesh, setup.rank, groups, ranks_per_node), world.watchdog().heartbeat());
    times.insert(times.end(), measured.begin(), measured.end());
  }
  return times;
}

// The machine whose figures stand where none are measured, with nodes of so many ranks.
Machine machine_like(const CommandLine& line, const World& world, int ranks_per_node) {
  Machine like = read_machine(line.machine);
  like.ranks_per_node = ranks_per_node;
  if ((ranks_per_node > 1 && like.in_node[0].empty()) || (world.nodes() > 1 && like.between_nodes.empty()))
    throw BadInput("--machine " + line.machine + " has no " +
                   (world.nodes() > 1 && like.between_nodes.empty() ? "network" : "collectives") + ", and there are " +
                   counted(ranks_per_node, "rank") + " on each of " + counted(world.nodes(), "node") +
                   "; legal: a machine with rates of them");
  return like;
}

// Each call beside both machines' times, and how far they are from it.
void say_calls(const std::vector<CallTime>& times, const Machine& before, const Machine& after) {
  std::printf("%-26s %-15s %6s %6s %14s %12s %9s %9s %9s\n", "group", "call", "ranks", "nodes", "bytes sent", "seconds",
              "GB/s", "before", "after");
  std::vector<double> errors[2];
  for (const auto& [call, place, seconds] : times) {
    const double bytes = static_cast<double>(sent_elements(call.collective, call.count, place.ranks)) *
                         static_cast<double>(size_of(call.type));
    double error[2];
    for (int i = 0; i < 2; ++i) {
      error[i] = collective_seconds(i == 0 ? before : after, call, place) / seconds - 1;
      errors[i].push_back(std::abs(error[i]));
    }
    std::printf("%-26s %-15s %6d %6d %14.0f %12.6f %9.2f %+8.1f%% %+8.1f%%\n", std::string(name_of(call.group)).c_str(),
                std::string(name_of(call.collective)).c_str(), place.ranks, place.nodes, bytes, seconds,
                bytes / seconds / 1e9, 100 * error[0], 100 * error[1]);
  }
  std::printf("median error of %zu calls: %.1f %% before, %.1f %% after\n", times.size(), 100 * median(errors[0]),
              100 * median(errors[1]));
}

std::string links_text(const CommandLine& line, const World& world, const Machine& machine) {
  const std::string where = counted(world.size(), "rank") + " on " + counted(world.nodes(), "node");
  std::string text =
      "# Written by forge calibrate: collectives of " + where + " (" + device_info().name +
      "), in the groups and sizes of " + joined(line.inputs) +
      ".\ndescription: " + yaml_text(machine.description + "; collectives as " + where + " measured them") +
      "\nlike: " + yaml_text(line.machine) + "\nnode: {ranks: " + std::to_string(machine.ranks_per_node) + "}\n";
  if (machine.ranks_per_node > 1) text += "collectives:\n";
  for (int c = 0; c < collective_count && machine.ranks_per_node > 1; ++c)
    text += collective_text(static_cast<Collective>(c), machine.in_node[to_size(c)]);
  if (machine.between_nodes.empty()) return text;
  text += formatted("network:\n  latency_us: %.4g\n  rank_us: %.4g\n", 1e6 * machine.network_latency,
                    1e6 * machine.network_per_rank);
  std::vector<double> nodes, rates[collective_count];
  for (const NodesRates& r : machine.between_nodes) {
    nodes.push_back(r.nodes);
    for (int c = 0; c < collective_count; ++c) rates[c].push_back(r.bandwidth[to_size(c)]);
  }
  text += "  nodes: " + list_of(nodes, 1) + "\n";
  for (int c = 0; c < collective_count; ++c)
    text += "  " + key_of(static_cast<Collective>(c)) + ": " + list_of(rates[c], 1e9) + "\n";
  return text;
}

void calibrate_links(const CommandLine& line, const World& world) {
  std::list<OutputLock> locks;
  if (world.rank() == 0) locks = lock_outputs(line);
  const int ranks_per_node = (world.size() + world.nodes() - 1) / world.nodes();
  const Machine like = machine_like(line, world, ranks_per_node);
  choose_device(world);
  const std::vector<CallTime> times = calls_of_decks(line, world, ranks_per_node);
  if (times.empty())
    throw BadInput("one rank has no collectives; legal: decks of as many ranks as are started, 2 or more");
  if (world.rank() != 0) return;
  const Machine fitted = fit_calls(like, times);
  say_calls(times, like, fitted);
  write_text_file(path_of(line), links_text(line, world, fitted));
  std::printf("%s: %s\n", path_of(line).c_str(), read_machine(path_of(line)).description.c_str());
}

}  // namespace

void run_calibrate(const CommandLine& line, const World& world) {
  if (!line.inputs.empty()) return calibrate_links(line, world);
  if (std::string(device_info().kind) == "cuda")
    throw BadInput(
        "forge calibrate alone measures processors; legal on GPUs: forge calibrate DECK --machine NAME, whose "
        "collectives "
        "are measured (tests/gpu/first_day.sh measures kernels)");
  calibrate_processors(line, world);
}

}  // namespace forge
