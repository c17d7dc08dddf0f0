#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>

#include "config/report.hpp"
#include "config/shared_files.hpp"
#include "config/text.hpp"
#include "config/values.hpp"
#include "config/yaml.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "predict/machine.hpp"

namespace forge {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double micro = 1e-6, giga = 1e9, tera = 1e12;

// A map of the file, whose entries are taken one by one; what nobody took is unknown.
class FileSection {
 public:
  FileSection(const YamlNode& node, std::string name, const std::string& file, Report& report)
      : node_(&node), name_(std::move(name)), file_(file), report_(report), taken_(node.entries.size(), false) {
    if (node.kind != YamlNode::Kind::map && node.kind != YamlNode::Kind::unusable)
      fail(node, name_ + " must be a map of names and values");
  }
  FileSection(const FileSection&) = delete;
  FileSection(FileSection&&) = default;
  ~FileSection() {
    for (std::size_t i = 0; i < taken_.size(); ++i)
      if (!taken_[i]) {
        const auto& entry = node_->entries[i];
        report_.add(place(entry.line, entry.column), "unknown: " + path(entry.name) + "; legal: " + joined(legal_));
      }
  }

  const YamlNode* find(const std::string& name) {
    legal_.push_back(name);
    for (std::size_t i = 0; i < taken_.size(); ++i)
      if (node_->entries[i].name == name) {
        taken_[i] = true;
        return node_->entries[i].value.kind == YamlNode::Kind::unusable ? nullptr : &node_->entries[i].value;
      }
    return nullptr;
  }
  std::optional<FileSection> section(const std::string& name) {
    const YamlNode* node = find(name);
    if (!node) return std::nullopt;
    return std::optional<FileSection>(std::in_place, *node, path(name), file_, report_);
  }

  // A number of [least, most], times `unit`; stays what it is where the file doesn't have it.
  void number(const std::string& name, double& to, double unit = 1, double least = 0, double most = infinity) {
    if (const YamlNode* node = find(name)) to = value(*node, path(name), least, most) * unit;
  }
  void integer(const std::string& name, int& to, int least, int most) {
    double value = to;
    number(name, value, 1, least, most);
    to = static_cast<int>(value);
    if (to != value) fail(*find(name), path(name) + " must be a whole number");
  }
  void numbers(const std::string& name, std::vector<double>& to, double unit, bool ascending) {
    const YamlNode* node = find(name);
    if (!node) return;
    to.clear();
    if (node->kind != YamlNode::Kind::list || node->items.empty())
      return fail(*node, path(name) + " must be a list of numbers");
    for (const YamlNode& item : node->items) {
      to.push_back(value(item, path(name), std::numeric_limits<double>::min(), infinity) * unit);
      if (ascending && to.size() > 1 && to[to.size() - 2] >= to.back()) fail(item, path(name) + " must ascend");
    }
  }
  void text(const std::string& name, std::string& to) {
    if (const YamlNode* node = find(name)) to = node->text;
  }
  // What the file must have.
  void require_that(bool holds, const std::string& text) {
    if (!holds) fail(*node_, (name_.empty() ? "" : name_ + ": ") + text);
  }

 private:
  std::string path(const std::string& name) const { return name_.empty() ? name : name_ + "." + name; }
  std::string place(int line, int column) const {
    return file_ + ":" + std::to_string(line) + ":" + std::to_string(column);
  }
  void fail(const YamlNode& node, const std::string& text) { report_.add(place(node.line, node.column), text); }
  double value(const YamlNode& node, const std::string& name, double least, double most) {
    const auto number = node.kind == YamlNode::Kind::scalar ? parse_number(node.text) : std::nullopt;
    if (number && *number >= least && *number <= most) return *number;
    const auto short_text = [](double x) {
      std::string text = std::to_string(x);
      text.erase(text.find_last_not_of('0') + 1);
      return text.back() == '.' ? text.substr(0, text.size() - 1) : text;
    };
    fail(node, name + " = " + shown(node.text) + ": legal: a number, at least " + short_text(least) +
                   (std::isfinite(most) ? ", at most " + short_text(most) : ""));
    return least;
  }

  const YamlNode* node_;
  std::string name_;
  const std::string& file_;
  Report& report_;
  std::vector<char> taken_;
  std::vector<std::string> legal_;
};

void read_attention(FileSection& in, AttentionRates& to) {
  in.numbers("tokens", to.tokens, 1, true);
  in.numbers("forward_tflops", to.forward, tera, false);
  in.numbers("backward_tflops", to.backward, tera, false);
  in.require_that(!to.tokens.empty() && to.forward.size() == to.tokens.size() && to.backward.size() == to.tokens.size(),
                  "must have as many forward_tflops and backward_tflops as tokens");
  in.numbers("head_columns", to.columns, 1, true);
  in.numbers("forward_share", to.forward_fraction, 1, false);
  in.numbers("backward_share", to.backward_fraction, 1, false);
  in.require_that(to.forward_fraction.size() == to.columns.size() && to.backward_fraction.size() == to.columns.size(),
                  "must have as many forward_share and backward_share as head_columns");
}

void read_experts(FileSection& in, ExpertRates& to) {
  in.numbers("rows", to.rows, 1, true);
  bool complete = !to.rows.empty();
  const char* const names[] = {"output_tflops", "input_gradient_tflops", "weight_gradient_tflops"};
  for (std::size_t of = 0; of < to.rates.size(); ++of) {
    in.numbers(names[of], to.rates[of], tera, false);
    complete = complete && to.rates[of].size() == to.rows.size();
  }
  in.require_that(complete,
                  "must have as many output_tflops, input_gradient_tflops and weight_gradient_tflops as rows");
}

void read_compute(FileSection& in, ComputeRates& to) {
  WaveRates& w = to.waves;
  in.number("peak_tflops", w.peak, tera);
  in.number("launch_us", w.launch, micro);
  in.number("wave_us", w.wave, micro);
  std::vector<double> tiles;
  in.numbers("tile_shares", tiles, 1, false);
  in.require_that(tiles.empty() || tiles.size() == 3, "tile_shares must have three numbers: large, medium, small");
  if (tiles.size() == 3) {
    w.large = tiles[0];
    w.medium = tiles[1];
    w.small = tiles[2];
  }
  in.number("memory_share", w.memory_fraction, 1, 0.01, 1);
  if (auto table = in.section("table")) {
    ProductTable& t = to.table;
    table->numbers("m", t.m, 1, true);
    table->numbers("n", t.n, 1, true);
    table->numbers("k", t.k, 1, true);
    const char* const names[] = {"gflops", "input_gradient_gflops", "weight_gradient_gflops"};
    for (std::size_t of = 0; of < t.rates.size(); ++of) table->numbers(names[of], t.rates[of], giga, false);
    table->number("launch_us", t.launch, micro);
    const std::size_t shapes = t.m.size() * t.n.size() * t.k.size();
    for (std::size_t of = 0; of < t.rates.size(); ++of)
      table->require_that(
          (of > 0 && t.rates[of].empty()) || (shapes > 0 && t.rates[of].size() == shapes),
          std::string(names[of]) + " must have a rate for each m, n and k: " + std::to_string(shapes) + " of them");
  }
  in.number("fp8_peak_tflops", to.code_peak, tera);
  in.require_that(w.peak > 0 ? w.large > 0 && w.memory_fraction > 0 : !to.table.rates[0].empty(),
                  "legal: peak_tflops with tile_shares and memory_share, or a table");
  if (auto attention = in.section("attention"))
    for (const char* kernel : {"processor", "cuda_cores", "tensor_cores", "cudnn", "library"})
      if (auto rates = attention->section(kernel)) read_attention(*rates, to.attention[kernel]);
  if (auto experts = in.section("experts"))
    for (const char* kernel : {"tensor_cores", "cutlass"})
      if (auto rates = experts->section(kernel)) read_experts(*rates, to.experts[kernel]);
  in.require_that(!to.attention.empty(), "attention is missing: a map of kernels with their rates");
}

void read_protocols(const YamlNode* list, const std::string& name, std::vector<ProtocolRates>& to,
                    const std::string& file, Report& report) {
  for (const YamlNode& item : list->items) {
    FileSection in(item, name, file, report);
    ProtocolRates rates;
    in.number("latency_us", rates.latency, micro);
    in.number("rank_us", rates.per_rank, micro);
    in.number("gb_s", rates.bandwidth, giga);
    in.number("own_gb_s", rates.own, giga);
    in.require_that(rates.bandwidth > 0, "gb_s is missing, or 0");
    to.push_back(rates);
  }
}

void read_kernels(const YamlNode& map, Machine& m, const std::string& file, Report& report) {
  for (const YamlNode::Entry& entry : map.entries) {
    FileSection in(entry.value, "kernels." + entry.name, file, report);
    KernelRates& rates = m.kernels[entry.name];
    in.number("launch_us", rates.launch, micro);
    in.number("gb_s", rates.bandwidth, giga);
    in.require_that(rates.bandwidth > 0, "gb_s is missing, or 0");
  }
}

// Whether a library's kernels are taken in place of forge's by tensor cores.
void read_library(FileSection& in, const std::string& key, const std::string& library, bool& takes) {
  std::string word = takes ? library : "tensor_cores";
  in.text(key, word);
  in.require_that(word == "tensor_cores" || word == library,
                  key + " = " + shown(word) + "; legal: tensor_cores, " + library);
  takes = word == library;
}

void read_network(FileSection& in, Machine& m) {
  in.number("latency_us", m.network_latency, micro);
  in.number("rank_us", m.network_per_rank, micro);
  in.number("rank_us_gb", m.network_per_rank_byte, micro / giga);
  std::vector<double> nodes;
  in.numbers("nodes", nodes, 1, true);
  m.between_nodes.clear();
  for (const double n : nodes) m.between_nodes.push_back({static_cast<int>(n), {}});
  for (int c = 0; c < collective_count; ++c) {
    std::vector<double> rates;
    const std::string name = key_of(static_cast<Collective>(c));
    in.numbers(name, rates, giga, false);
    in.require_that(rates.size() == nodes.size(), name + " must have as many rates (GB/s) as nodes");
    for (std::size_t i = 0; i < std::min(rates.size(), nodes.size()); ++i)
      m.between_nodes[i].bandwidth[to_size(c)] = rates[i];
  }
}

void read_parts(FileSection& in, Machine& m, const std::string& file, Report& report) {
  in.text("description", m.description);
  double memory_mib = 0;
  if (auto node = in.section("node")) {
    node->integer("ranks", m.ranks_per_node, 1, 1 << 16);
    node->integer("cores", m.cores_per_node, 0, 1 << 16);
    node->number("memory_mib", memory_mib, 1, 1);
  }
  if (memory_mib > 0) m.memory_bytes = static_cast<std::size_t>(memory_mib) << 20;
  in.require_that(m.memory_bytes > 0, "node.memory_mib is missing: the memory of a rank");
  if (auto rows = in.section("rows")) {
    rows->number("memory_gb_s", m.memory_bandwidth, giga);
    rows->number("memory_share", m.row_fraction, 1, 0.001, 1);
    rows->number("launch_us", m.row_launch, micro);
  }
  in.require_that(m.memory_bandwidth > 0, "rows.memory_gb_s is missing: the bandwidth of a rank's memory");
  if (const YamlNode* list = in.find("kernels")) read_kernels(*list, m, file, report);
  in.number("compute_speed", m.compute_speed, 1, least_speed, most_speed);
  in.number("network_speed", m.network_speed, 1, least_speed, most_speed);
  in.number("uncertainty", m.uncertainty, 1, 0, 0.99);
  in.number("overlap_speed", m.overlap_speed, 1, 0.01, 1);
  if (auto host = in.section("host")) {
    host->number("launch_us", m.host_launch, micro);
    host->number("step_ms", m.step_seconds, 1e-3);
  }
  if (auto compute = in.section("compute")) {
    compute->integer("units", m.units, 1, 1 << 16);
    compute->integer("capability", m.capability, 0, 1000);
    read_library(*compute, "grouped", "cutlass", m.has_cutlass);
    read_library(*compute, "attention", "cudnn", m.prefers_cudnn);
    if (auto power = compute->section("power")) {
      power->numbers("share", m.power.fractions, 1, true);
      power->numbers("clock", m.power.clocks, 1, false);
      power->require_that(m.power.fractions.size() == m.power.clocks.size(), "must have as many clocks as shares");
      power->require_that(std::all_of(m.power.clocks.begin(), m.power.clocks.end(), [](double c) { return c <= 1; }),
                          "clock: legal: numbers of at most 1");
    }
    const char* types[] = {"fp64", "fp32", "bf16"};
    for (std::size_t t = 0; t < 3; ++t)
      if (auto rates = compute->section(types[t])) read_compute(*rates, m.compute[t]);
  }
  bool any = false;
  for (const ComputeRates& rates : m.compute) any = any || rates.known();
  in.require_that(any, "compute has no type; legal: fp64, fp32, bf16");
  if (auto collectives = in.section("collectives"))
    for (int c = 0; c < collective_count; ++c) {
      const std::string name = key_of(static_cast<Collective>(c));
      const YamlNode* list = collectives->find(name);
      std::vector<ProtocolRates>& rates = m.in_node[to_size(c)];
      collectives->require_that(list ? list->kind == YamlNode::Kind::list && !list->items.empty() : !rates.empty(),
                                name + " must be a list of maps {latency_us, rank_us, gb_s, own_gb_s}");
      if (list) rates.clear();
      if (list) read_protocols(list, "collectives." + name, rates, file, report);
    }
  in.require_that(!m.in_node[0].empty() || m.ranks_per_node == 1,
                  "collectives are missing: the ranks of a node are " + std::to_string(m.ranks_per_node));
  if (auto network = in.section("network")) read_network(*network, m);
}

// read(section) of the whole file, whose text it returns; everything that is wrong is thrown together.
template <class Read>
std::string read_file(const std::string& file, const char* what, Read read) {
  Report report;
  YamlNode root;
  std::string text = read_text_file(file, most_yaml_bytes, what);
  if (parse_yaml(text, file, root, report)) {
    FileSection all(root, "", file, report);
    read(all, report);
  }
  report.throw_if_any(file);
  return text;
}

void read_parts(FileSection& in, Program& p) {
  std::string description;
  double gradients = 1, at_once = 0;
  in.text("description", description);
  in.number("product_share", p.product_fraction, 1, 0.01, 2);
  in.text("attention_kernel", p.attention_kernel);
  in.number("attention_share", p.attention_fraction, 1, 0.01, 2);
  in.number("score_bytes", p.score_bytes, 1, 0, 1000);
  in.number("logit_bytes", p.logit_bytes, 1, 0, 10000);
  in.number("row_traffic", p.row_traffic, 1, 0.01, 100);
  in.number("tp_traffic", p.tp_traffic, 1, 0, 10);
  in.number("tp_wait_us", p.tp_wait, micro);
  in.number("accumulate_bytes", p.accumulate_bytes);
  in.number("host_forward_us", p.host_forward, micro);
  in.number("host_backward_us", p.host_backward, micro);
  in.number("host_collective_us", p.host_collective, micro);
  in.number("host_pipeline_us", p.host_pipeline, micro);
  in.number("transfer_us", p.transfer, micro);
  in.number("optimizer_bytes", p.optimizer_bytes);
  in.number("step_ms", p.step, 1e-3);
  in.number("activation_memory", p.activation_memory, 1, 1, 10);
  in.number("gradient_memory", p.gradient_memory, 1, 0, 100);
  in.number("gradients_behind", gradients, 1, 0, 1);
  in.number("shards_at_once", at_once, 1, 0, 1);
  p.gradients_behind = gradients > 0;
  p.shards_at_once = at_once > 0;
}

constexpr int most_likes = 8;

// A GPU's name stands for the machine that has it.
std::string machine_name(const std::string& name) {
  for (const Gpu& gpu : gpus)
    if (name == gpu.name) return gpu.machine;
  return name;
}

// `like`: a machine whose figures stand where this file has none.
void read_machine_file(const std::string& file, int likes, Machine& machine) {
  machine.text += read_file(file, "the machine", [&](FileSection& in, Report& report) {
    std::string like;
    in.text("like", like);
    if (!like.empty()) {
      if (likes == most_likes) throw BadInput(file + ": like = " + shown(like) + " leads in a circle");
      read_machine_file(shared_file(machine_name(like), "machine", "inputs/machines"), likes + 1, machine);
    }
    read_parts(in, machine, file, report);
  });
}

}  // namespace

std::string key_of(Collective collective) {
  std::string name(name_of(collective));
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

Machine read_machine(const std::string& name) {
  const std::string file = shared_file(machine_name(name), "machine", "inputs/machines");
  Machine machine;
  machine.name = std::filesystem::path(file).stem().string();
  read_machine_file(file, 0, machine);
  return machine;
}

Program read_program(const std::string& name) {
  const std::string file = shared_file(name, "program", "inputs/programs");
  Program program;
  program.name = std::filesystem::path(file).stem().string();
  program.text = read_file(file, "the program", [&](FileSection& in, Report&) { read_parts(in, program); });
  return program;
}

}  // namespace forge
