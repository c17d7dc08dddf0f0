#include "app/show_parts.hpp"
#include "config/keys.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "fp8/amax_history.hpp"
#include "fp8/codes.hpp"
#include "plan/pass_memo.hpp"
#include "plan/placement.hpp"
#include "plan/task_segments.hpp"
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
  Cost(const BufferContext& c, const Segments& list) {
    for (const Product& p : list.all<Product>()) products += p.flops(), in_fp8 += p.rounded ? p.flops() : 0;
    for (const ExpertProduct& p : list.all<ExpertProduct>()) products += p.flops(), in_fp8 += p.rounded ? p.flops() : 0;
    for (const RowKernel& k : list.all<RowKernel>())
      if (k.name.starts_with("fp8_")) rounding += k.read_bytes + k.written_bytes;
    const auto gather = [&](std::int64_t count, int ranks) {
      amaxes += sent_elements(Collective::all_gather, count, ranks) * static_cast<std::int64_t>(sizeof(float));
      calls += count > 0 && ranks > 1;
    };
    for (const ScaledProduct& p : list.scaled)
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
  return formatted("  %-30s ", name) + value + "\n";
}

// By the unit that multiplies; measurements: docs/notes/fp8.md, "On GPUs".
std::string saved_time(const RunSetup& s, const std::string& carrier) {
  if (s.buffers.rounding.codes) return "time of products (8 layers of a 7B on an H100: 195.5 ms a step, 224.2 in bf16)";
  const bool elsewhere = s.capability == 0 && multiplies_codes(s.deck, 90);
  return "no time: products read rounded numbers in " + carrier +
         (elsewhere ? ", but of codes on an H100 (--gpu h100-80)" : "");
}

// Of the delayed recipe.
std::string history_text(const BufferContext& c) {
  if (c.rounding.history == 0) return "";
  const auto bytes = to_size(AmaxHistory::rows(c.spec)) * sizeof(float);
  return line("history", std::to_string(c.rounding.history) + " steps of " + format_bytes(bytes) +
                             ", which all ranks have; one all-reduce of as many bytes a step");
}

// Of weights that are gathered as codes, and all that is gathered with them; bytes.
struct Gathered {
  std::int64_t sent = 0, whole = 0, amaxes = 0;  // in a step, as numbers instead, with an update
  std::size_t memory = 0;
};
Gathered gathered(const RunSetup& s, const std::vector<Task>& tasks) {
  const BufferContext& c = s.buffers;
  const GroupSizes sizes = group_sizes(s.spec, s.mesh, s.share);
  Gathered g;
  for (const Task& task : tasks) {
    if (task.op != TaskOp::gather || !s.share.coded.has(task.unit)) continue;
    std::vector<Sent> list = sends_of(c, s.share, task);
    for (const Sent& each : list) g.sent += bytes_of(each, sizes);
    list.front().type = c.precision.compute;
    g.whole += bytes_of(list.front(), sizes);
  }
  for (const Sent& each : sends_of(c, s.share, {TaskOp::weight_amaxes, {}})) g.amaxes += bytes_of(each, sizes);
  g.memory = with_compute_type(
      c.precision, [&](auto type) { return counted_bytes<CodedBuffers<decltype(type)>>(c, s.share.coded); });
  return g;
}
std::string gather_text(const RunSetup& s, const std::vector<Task>& tasks) {
  if (!s.deck.train.fp8_gather) return "";
  if (s.share.coded.codes == 0) return line("gathered as codes", "nothing: no unit of such weights is sharded");
  const Gathered g = gathered(s, tasks);
  const auto bytes = [](std::int64_t n) { return format_bytes(to_size(n)); };
  return line("saves: gathered as codes", bytes(g.sent) + " sent in a step for units that take " + bytes(g.whole) +
                                              " in " + std::string(name_of(s.buffers.precision.compute))) +
         line("costs: codes", format_bytes(g.memory) + ", and " + bytes(g.amaxes) + " of amaxes sent with an update");
}

// Of rows that go to experts, as codes or in the carrier's type: bytes of a step.
std::int64_t sent_to_experts(const RunSetup& s, const std::vector<Task>& tasks, bool codes) {
  BufferContext c = s.buffers;
  c.rounding.dispatch = c.rounding.dispatch && codes;
  const GroupSizes sizes = group_sizes(s.spec, s.mesh, s.share);
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
  return bytes;
}
std::string dispatch_text(const RunSetup& s, const std::vector<Task>& tasks) {
  if (!s.deck.train.fp8_dispatch) return "";
  const auto sent = [&](bool codes) { return format_bytes(to_size(sent_to_experts(s, tasks, codes))); };
  return line("saves: sent to experts as codes", sent(true) + " sent over ep and etp in a step, " + sent(false) +
                                                     " with rows in " +
                                                     std::string(name_of(s.buffers.precision.compute)));
}

Cost cost_of(const RunSetup& s, const std::vector<Task>& tasks) {
  const BufferContext& c = s.buffers;
  Cost cost;
  PassMemo<Cost> known;
  for (const Task& task : tasks)
    if (const LayerPass p = pass_of(task, s.share); p.layer)
      cost.add(known.of(p, [&] { return Cost(c, segments_of(c, s.share, task)); }));
  return cost;
}

// Of the workspace: bytes.
struct Copies {
  std::size_t numbers, codes;
};
Copies copies_of(const RunSetup& s) {
  const RoundingSizes sizes = rounding_sizes(s.buffers, s.share);
  return {to_size(sizes.a + sizes.b) * size_of(s.buffers.precision.compute),
          to_size(sizes.a_codes + sizes.b_codes) + to_size(sizes.factors) * sizeof(float)};
}

}  // namespace

std::string rounding_text(const RunSetup& s) {
  const BufferContext& c = s.buffers;
  if (!c.rounding.on) return "";
  const std::vector<Task> tasks = step_tasks(s.share, s.schedule, c.recompute);
  const Cost cost = cost_of(s, tasks);
  const auto [copies, codes] = copies_of(s);
  const std::string share = formatted("%.1f %%", 100 * cost.in_fp8 / std::max(cost.products, 1.0));
  const std::string carrier(name_of(s.buffers.precision.compute));
  return "fp8 on the first rank (docs/parallelism.md)\n" +
         line("recipe",
              value_of(s.deck, "fp8_recipe") + ", scales " + value_of(s.deck, "fp8_scale") +
                  (c.rounding.transposed ? ", transposed copies for weight gradients; blocks " : "; blocks ") +
                  std::to_string(c.rounding.first_block) + " to " + std::to_string(c.rounding.end_block - 1)) +
         line("of the FLOP of products", share) + line("saves", saved_time(s, carrier)) +
         line("costs: rounded copies", format_bytes(copies)) +
         (codes > 0 ? line("costs: codes", format_bytes(codes)) : "") +
         line("rounding, in a step", format_bytes(to_size(cost.rounding)) + " read and written") +
         line("amaxes, in a step",
              format_bytes(to_size(cost.amaxes)) + " sent in " + std::to_string(cost.calls) + " all-gathers") +
         history_text(c) + gather_text(s, tasks) + dispatch_text(s, tasks) + "\n";
}

void add_rounding(JsonLine& deck, const RunSetup& s) {
  JsonLine all;
  const BufferContext& c = s.buffers;
  if (!c.rounding.on) return;
  const std::vector<Task> tasks = step_tasks(s.share, s.schedule, c.recompute);
  const Cost cost = cost_of(s, tasks);
  const Copies copies = copies_of(s);
  all.add("first_block", c.rounding.first_block)
      .add("end_block", c.rounding.end_block)
      .add("history_steps", c.rounding.history);
  all.add("product_flops", cost.products).add("product_flops_in_fp8", cost.in_fp8);
  all.add("copies_bytes", copies.numbers).add("codes_bytes", copies.codes);
  all.add("rounding_bytes", cost.rounding).add("amaxes_sent_bytes", cost.amaxes).add("amaxes_calls", cost.calls);
  if (s.deck.train.fp8_gather && s.share.coded.codes > 0) {
    const Gathered g = gathered(s, tasks);
    all.add("gathered_bytes", g.sent).add("gathered_bytes_as_numbers", g.whole);
    all.add("gathered_codes_bytes", g.memory).add("gathered_amaxes_bytes", g.amaxes);
  }
  if (s.deck.train.fp8_dispatch)
    all.add("sent_to_experts_bytes", sent_to_experts(s, tasks, true))
        .add("sent_to_experts_bytes_as_numbers", sent_to_experts(s, tasks, false));
  deck.add("fp8", all);
}

}  // namespace forge
