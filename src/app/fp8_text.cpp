#include "app/fp8_text.hpp"

#include <cstdio>

#include "config/keys.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "model/fp8_codes.hpp"
#include "model/fp8_history.hpp"
#include "plan/operations.hpp"
#include "plan/pass_memo.hpp"
#include "plan/placement.hpp"
#include "plan/tasks.hpp"
#include "plan/traffic.hpp"

namespace forge {

namespace {

std::string value_of(const Deck& deck, const char* name) {
  return value_text(*find_key("train", name), deck);
}

// Of a step's tasks.
struct Cost {
  double products = 0, in_fp8 = 0;     // FLOP
  std::int64_t rounding = 0;           // bytes read and written
  std::int64_t amaxes = 0, calls = 0;  // bytes that the rank sends, in so many collectives

  Cost() = default;
  Cost(const BufferContext& c, const Operations& o) {
    for (const Product& p : o.products) products += p.flops(), in_fp8 += p.fp8 ? p.flops() : 0;
    for (const ExpertProduct& p : o.expert_products) products += p.flops(), in_fp8 += p.fp8 ? p.flops() : 0;
    for (const RowKernel& k : o.row_kernels)
      if (k.name.starts_with("fp8_")) rounding += k.read_bytes + k.written_bytes;
    const auto gather = [&](std::int64_t count, int ranks) {
      amaxes += sent_elements(Collective::all_gather, count, ranks) * static_cast<std::int64_t>(sizeof(float));
      calls += count > 0 && ranks > 1;
    };
    for (const ScaledProduct& p : o.scaled)
      gather(p.over_tp(), p.splitters() == Group::etp ? c.etp : c.tp), gather(p.over_cp(), c.microbatch.cp);
  }

  void add(const Cost& other) {
    products += other.products;
    in_fp8 += other.in_fp8;
    rounding += other.rounding;
    amaxes += other.amaxes;
    calls += other.calls;
  }
};

std::string line(const char* name, const std::string& value) {
  char label[40];
  std::snprintf(label, sizeof label, "  %-30s ", name);
  return label + value + "\n";
}

// By what multiplies; what was measured: docs/performance.md, "On a GPU", and docs/fp8.md, "On GPUs".
std::string saved_time(const RunSetup& s, const std::string& carrier) {
  if (s.buffers.fp8.codes) return "time of products (8 layers of a 7B on an H100: 195.5 ms a step, 224.2 in bf16)";
  const bool elsewhere = s.capability == 0 && multiplies_codes(s.deck, 90);
  return "no time: products read rounded numbers in " + carrier +
         (elsewhere ? ", but of codes on an H100 (--gpu h100-80)" : "");
}

// Of the delayed recipe.
std::string history_text(const BufferContext& c) {
  if (c.fp8.history == 0) return "";
  const auto bytes = to_size(Fp8History::rows(c.spec)) * sizeof(float);
  return line("history", std::to_string(c.fp8.history) + " steps of " + format_bytes(bytes) +
                             ", which all ranks have; one all-reduce of as many bytes a step");
}

// Of weights that are gathered as codes, and all that is gathered with them.
std::string gather_text(const RunSetup& s, const std::vector<Task>& tasks) {
  const BufferContext& c = s.buffers;
  const CodedUnits& coded = s.share.coded;
  if (!s.deck.train.fp8_gather) return "";
  if (coded.amaxes() == 0) return line("gathered as codes", "nothing: no unit of such weights is sharded");
  const GroupSizes sizes = group_sizes(s.spec, s.mesh, s.share);
  std::int64_t sent = 0, whole = 0;
  for (const Task& task : tasks) {
    if (task.op != TaskOp::gather || !coded.has(task.unit)) continue;
    std::vector<Sent> list = sends_of(c, s.share, task);
    for (const Sent& each : list) sent += bytes_of(each, sizes);
    list.front().type = c.precision.compute;
    whole += bytes_of(list.front(), sizes);
  }
  std::int64_t amaxes = 0;
  for (const Sent& each : sends_of(c, s.share, {TaskOp::weight_amaxes, {}})) amaxes += bytes_of(each, sizes);
  const std::size_t memory = with_compute_type(
      c.precision, [&](auto type) { return counted_bytes<CodedBuffers<decltype(type)>>(c, s.share.coded); });
  const auto bytes = [](std::int64_t n) { return format_bytes(to_size(n)); };
  return line("saves: gathered as codes", bytes(sent) + " sent in a step for units that take " + bytes(whole) + " in " +
                                              std::string(name_of(c.precision.compute))) +
         line("costs: codes", format_bytes(memory) + ", and " + bytes(amaxes) + " of amaxes sent with an update");
}

// Of rows that go to experts as codes, and what they would be in the carrier's type.
std::string dispatch_text(const RunSetup& s, const std::vector<Task>& tasks) {
  if (!s.deck.train.fp8_dispatch) return "";
  BufferContext as_rows = s.buffers;
  as_rows.fp8.dispatch = false;
  const GroupSizes sizes = group_sizes(s.spec, s.mesh, s.share);
  const auto sent = [&](const BufferContext& c) {
    std::int64_t bytes = 0;
    PassMemo<std::int64_t> known;
    const auto bytes_in = [&](const Task& task) {
      std::int64_t sum = 0;
      for (const Sent& each : sends_of(c, s.share, task))
        if (each.group == Group::ep || each.group == Group::etp) sum += bytes_of(each, sizes);
      return sum;
    };
    for (const Task& task : tasks)
      if (const LayerPass p = pass_of(task, s.share); p.layer) bytes += known.of(p, [&] { return bytes_in(task); });
    return format_bytes(to_size(bytes));
  };
  return line("saves: sent to experts as codes", sent(s.buffers) + " sent over ep and etp in a step, " + sent(as_rows) +
                                                     " with rows in " +
                                                     std::string(name_of(s.buffers.precision.compute)));
}

}  // namespace

std::string fp8_text(const RunSetup& s) {
  const BufferContext& c = s.buffers;
  if (!c.fp8.on) return "";
  Cost cost;
  const std::vector<Task> tasks = step_tasks(s.share, s.schedule, c.recompute);
  PassMemo<Cost> known;
  for (const Task& task : tasks)
    if (const LayerPass p = pass_of(task, s.share); p.layer)
      cost.add(known.of(p, [&] { return Cost(c, operations_of(c, s.share, task)); }));
  const Fp8Sizes sizes = fp8_sizes(c, s.share);
  const auto copies = to_size(sizes.a + sizes.b) * size_of(c.precision.compute),
             codes = to_size(sizes.a_codes + sizes.b_codes) + to_size(sizes.factors) * sizeof(float);
  char share[32];
  std::snprintf(share, sizeof share, "%.1f %%", 100 * cost.in_fp8 / std::max(cost.products, 1.0));
  const std::string carrier = value_of(s.deck, "fp8_carrier");
  return "fp8 on the first rank (docs/fp8.md)\n" +
         line("recipe", value_of(s.deck, "fp8_recipe") + ", scales " + value_of(s.deck, "fp8_scale") +
                            (c.fp8.transposed ? ", transposed copies for weight gradients; blocks " : "; blocks ") +
                            std::to_string(c.fp8.first_block) + " to " + std::to_string(c.fp8.end_block - 1)) +
         line("of the FLOP of products", share) + line("saves", saved_time(s, carrier)) +
         line("costs: rounded copies", format_bytes(copies)) +
         (codes > 0 ? line("costs: codes", format_bytes(codes)) : "") +
         line("rounding, in a step", format_bytes(to_size(cost.rounding)) + " read and written") +
         line("amaxes, in a step",
              format_bytes(to_size(cost.amaxes)) + " sent in " + std::to_string(cost.calls) + " all-gathers") +
         history_text(c) + gather_text(s, tasks) + dispatch_text(s, tasks) + "\n";
}

}  // namespace forge
