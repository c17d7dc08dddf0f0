#include "app/show_parts.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "plan/task_segments.hpp"
#include "predict/step_cost.hpp"

namespace forge {

namespace {

enum class What { products, attention, rows, sends };
constexpr std::array<const char*, 4> what_names{"products", "attention", "rows", "collectives"};

struct CostPhase {
  double flops = 0, bytes = 0, floor = 0, expected = 0;
  std::int64_t launches = 0;
};

// What FLOP and bytes take at the least.
struct Floors {
  double flops_per_second, bytes_per_second, codes_per_second;
  double of(double flops, double bytes) const { return std::max(flops / flops_per_second, bytes / bytes_per_second); }
};

// The machine without launches, at its memory's full bandwidth: seconds of kernels over rows are bytes.
Machine at_its_floor(Machine machine) {
  machine.row_launch = machine.host_launch = machine.step_seconds = 0;
  machine.row_fraction = machine.compute_speed = 1;
  machine.kernels.clear();
  return machine;
}

double real(std::int64_t n) {
  return static_cast<double>(n);
}

// `codes`: operands are of 8 bits.
void add_product(CostPhase& phase, const Floors& floors, double m, double n, double k, double count, DType operands,
                 DType result, bool codes = false) {
  const double flops = 2 * m * n * k, in = codes ? 1 : real(size_of(operands)), out = real(size_of(result)),
               bytes = (m * k + k * n) * in + m * n * out;
  phase.flops += count * flops;
  phase.bytes += count * bytes;
  const double rate = codes ? floors.codes_per_second : floors.flops_per_second;
  phase.floor += count * std::max(flops / rate, bytes / floors.bytes_per_second);
}

// A library call, and a kernel, is a launch; products of experts are one each, or one together.
void add_operations(std::array<CostPhase, 4>& phases, const Floors& floors, const Segments& list) {
  CostPhase& products = phases[to_size(static_cast<int>(What::products))];
  for (const Product& p : list.all<Product>()) {
    add_product(products, floors, real(p.m), real(p.n), real(p.k), 1, p.operands, p.result, p.codes);
    ++products.launches;
  }
  for (const ExpertProduct& p : list.all<ExpertProduct>()) {
    const double experts = real(p.experts), rows = real(p.rows) / experts;
    add_product(products, floors, p.sums ? real(p.n) : rows, p.sums ? real(p.k) : real(p.n), p.sums ? rows : real(p.k),
                experts, p.operands, p.result);
    products.launches += p.launches();
  }
  CostPhase& attention = phases[to_size(static_cast<int>(What::attention))];
  for (const AttentionProduct& a : list.all<AttentionProduct>()) {
    attention.flops += a.flops();
    attention.floor += floors.of(a.flops(), 0);
    attention.launches += a.launches();
  }
  CostPhase& rows = phases[to_size(static_cast<int>(What::rows))];
  for (const RowKernel& r : list.all<RowKernel>()) {
    const double bytes = real(r.read_bytes + r.written_bytes);
    rows.bytes += bytes;
    rows.floor += floors.of(0, bytes);
    rows.launches += r.launches;
  }
}

// Tasks of the same phase stand together.
std::string phase_name(const Task& task) {
  if (task.op == TaskOp::norm || task.op == TaskOp::update || task.op == TaskOp::update_factored) return "optimizer";
  return std::string(name_of(task.op));
}

Floors floors_of(const RunSetup& setup, const Machine& machine) {
  const DType type = setup.buffers.precision.compute;
  const double peak = machine.peak(type), codes = machine.rates(type).code_peak;
  return {peak, machine.memory_bandwidth, codes > 0 ? codes : peak};
}

class CostTable {
 public:
  CostTable(const RunSetup& setup, const Machine& machine)
      : setup_(setup),
        buffers_(buffers_on(machine, setup)),
        floors_(floors_of(setup, machine)),
        floor_machine_(at_its_floor(machine)),
        expected_(machine, setup),
        least_(floor_machine_, setup) {
    for (const auto& tasks : {step_tasks(setup.share, setup.schedule, setup.buffers.recompute),
                              update_tasks(setup.share, setup.spec.options.router_bias)})
      for (const Task& task : tasks) add(task);
  }

  std::string text() const {
    std::string text;
    CostPhase all;
    for (const Row& row : rows()) {
      text += line(row.phase, row.what, row.cost);
      all.flops += row.cost.flops;
      all.bytes += row.cost.bytes;
      all.floor += row.cost.floor;
      all.expected += row.cost.expected;
      all.launches += row.cost.launches;
    }
    text += line("all", "", all);
    if (setup_.spec.E() == 0) return text;
    if (described_ && buffers_.kernels.grouped == GroupedProducts::automatic)
      text +=
          "  products of experts are taken to be CUTLASS's, of two launches each; in a build without it each has one\n";
    return text + "  the host waits for counts of experts' rows " + std::to_string(count_reads_) + " times in a step\n";
  }

  JsonLine json() const {
    JsonLine all;
    std::vector<JsonLine> list;
    for (const Row& row : rows())
      list.push_back(JsonLine()
                         .add("phase", row.phase)
                         .add("what", row.what)
                         .add("flops", row.cost.flops)
                         .add("bytes", row.cost.bytes)
                         .add("launches", row.cost.launches)
                         .add("floor_seconds", row.cost.floor)
                         .add("expected_seconds", row.cost.expected));
    return all.add("pp_rank", setup_.share.pp_rank).add("rows", list).add("count_reads", count_reads_);
  }

 private:
  struct Row {
    std::string phase;
    const char* what;
    CostPhase cost;
  };
  std::vector<Row> rows() const {
    std::vector<Row> list;
    for (const std::string& name : order_)
      for (std::size_t w = 0; w < what_names.size(); ++w)
        if (const CostPhase& p = phases_.at(name)[w]; p.floor > 0 || p.expected > 0)
          list.push_back({name, what_names[w], p});
    return list;
  }

  void add(const Task& task) {
    const std::string name = phase_name(task);
    if (!phases_.contains(name)) order_.push_back(name);
    std::array<CostPhase, 4>& phases = phases_[name];
    const Segments list = segments_of(buffers_, setup_.share, task);
    count_reads_ += list.count_reads;
    for (const ExpertProduct& p : list.all<ExpertProduct>()) described_ = described_ || p.described;
    add_operations(phases, floors_, list);
    const TaskCost expected = expected_(setup_.share, task), least = least_(setup_.share, task);
    phases[0].expected += expected.of(CostPart::products);
    phases[1].expected += expected.of(CostPart::attention);
    phases[2].expected += expected.of(CostPart::rows) + expected.of(CostPart::optimizer);
    for (int part = static_cast<int>(CostPart::tp); part <= static_cast<int>(CostPart::scalars); ++part)
      phases[3].expected += expected.seconds[to_size(part)];
    if (!list.segments.empty() || pass_of(task, setup_.share).layer) return;
    const double seconds = least.of(CostPart::rows) + least.of(CostPart::optimizer);
    phases[2].bytes += seconds * floors_.bytes_per_second;
    phases[2].floor += seconds;
    phases[2].launches += seconds > 0;
  }

  static std::string line(const std::string& name, const char* what, const CostPhase& p) {
    return formatted("  %-18s %-12s %12.3f %12.3f %9lld %12.3f %12.3f\n", name.c_str(), what, p.flops / 1e12,
                     p.bytes / 1e9, static_cast<long long>(p.launches), 1e3 * p.floor, 1e3 * p.expected);
  }

  const RunSetup& setup_;
  BufferContext buffers_;
  Floors floors_;
  Machine floor_machine_;
  StepCost expected_, least_;
  std::map<std::string, std::array<CostPhase, 4>> phases_;
  std::vector<std::string> order_;
  std::int64_t count_reads_ = 0;
  bool described_ = false;  // products of experts are CUTLASS's
};

}  // namespace

std::string cost_table(const RunSetup& setup, const Machine& machine) {
  return formatted(
             "pp rank %d in a step on %s; its streams run side by side, so the sums are no step\n"
             "  %-18s %-12s %12s %12s %9s %12s %12s\n",
             setup.share.pp_rank, machine.name.c_str(), "phase", "", "TFLOP", "GB", "launches", "floor, ms",
             "expected, ms") +
         CostTable(setup, machine).text();
}

JsonLine cost_json(const RunSetup& setup, const Machine& machine) {
  return CostTable(setup, machine).json().add("machine", machine.name);
}

}  // namespace forge
