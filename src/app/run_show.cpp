#include <cstdio>
#include <map>

#include "app/job.hpp"
#include "app/verbs.hpp"
#include "config/write.hpp"
#include "core/bytes.hpp"
#include "model/flops.hpp"

namespace forge {

namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

const char* initial_text(const Parameter& p) {
  switch (p.initial) {
    case Initial::zeros:
      return "0";
    case Initial::ones:
      return "1";
    case Initial::normal:
      return "normal";
  }
  return "?";
}

void print_unit(const Unit& unit, std::int64_t times) {
  for (const auto& p : unit.parameters) {
    const std::string initial =
        p.initial == Initial::normal ? "normal " + format_exact(p.std).substr(0, 8) : initial_text(p);
    std::printf("  %-30s %-18s %14lld  %-15s %-5s %s\n", p.name.c_str(), shape_text(p.shape).c_str(),
                static_cast<long long>(p.elements() * times), initial.c_str(), p.decays() ? "yes" : "no",
                p.hf_name.c_str());
  }
}

void print_parameters(const RunSetup& s) {
  std::printf("parameters (elements of all layers)\n  %-30s %-18s %14s  %-15s %-5s %s\n", "name", "shape", "elements",
              "starts at", "decay", "in the checkpoint");
  print_unit(s.units.front(), 1);
  print_unit(s.units[1], s.spec.L());
  if (s.spec.L() > 1) std::printf("  … the same for layers 1 to %lld\n", static_cast<long long>(s.spec.L() - 1));
  print_unit(s.units.back(), 1);
  const double all = static_cast<double>(parameter_count(s.units));
  std::printf("  %-30s %-18s %14lld  = %s\n\n", "all", "", static_cast<long long>(all), format_count(all).c_str());
}

void print_flops(const RunSetup& s) {
  const std::int64_t t = s.deck.train.sequence_tokens;
  double forward = 0;
  std::printf("FLOP a token, forward (T = %lld)\n", static_cast<long long>(t));
  const auto lines = forward_flops_per_token(s.spec, t);
  for (const auto& line : lines) forward += line.forward;
  for (const auto& line : lines)
    std::printf("  %-30s %14.0f  %5.1f %%\n", line.part.c_str(), line.forward, 100 * line.forward / forward);
  std::printf("  %-30s %14.0f\n  %-30s %14.0f\n  %-30s %14.4g\n\n", "forward", forward, "forward and backward",
              3 * forward, "a step of all ranks", 3 * forward * static_cast<double>(s.tokens_per_step()));
}

void print_saved(const RunSetup& s) {
  std::printf("saved by a block for backward, one microbatch of %lld rows (recompute none, selective, full)\n",
              static_cast<long long>(s.buffers.microbatch.rows()));
  BufferContext all = s.buffers;
  all.recompute = Recompute::none;
  for (const auto& b : saved_of_block(all))
    std::printf("  %-30s (%lld, %lld) %s  %s  last read by %s\n", std::string(b.name).c_str(),
                static_cast<long long>(b.extents[0]), static_cast<long long>(b.extents[1]),
                std::string(name_of(b.dtype)).c_str(), format_bytes(b.bytes()).c_str(),
                b.last_reader == Reader::backward_weight ? "W" : "B");
  std::printf("  kept of them:");
  for (const auto& [policy, name] :
       {std::pair{Recompute::none, "none"}, {Recompute::selective, "selective"}, {Recompute::full, "full"}}) {
    BufferContext c = s.buffers;
    c.recompute = policy;
    std::printf("  %s %s%s", name, format_bytes(aligned_bytes(saved_of_block(c))).c_str(),
                policy == s.buffers.recompute ? " (this deck)" : "");
  }
  std::printf("\n\n");
}

void print_memory(const RunSetup& s, const MemoryPlan& plan) {
  std::printf("memory of a rank, at its peak in the %s; %d microbatches in flight\n", plan.peak.c_str(), s.slots);
  for (int c = 0; c < category_count; ++c) {
    const auto category = static_cast<Category>(c);
    std::printf("  %-30s %18zu B  %s\n", std::string(name_of(category)).c_str(), plan.of(category),
                format_bytes(plan.of(category)).c_str());
  }
  std::printf("  %-30s %18zu B  %s\n", "peak", plan.total(), format_bytes(plan.total()).c_str());
  std::printf("  %-30s %18zu B  %s\n", "sum of all ranks", plan.total() * static_cast<std::size_t>(s.replicas),
              format_bytes(plan.total() * static_cast<std::size_t>(s.replicas)).c_str());
}

}  // namespace

void run_show(const CommandLine& line) {
  const int ranks = line.ranks > 0 ? line.ranks : 1;
  const Deck deck = load_deck(line, Needs::training, ranks);
  const RunSetup setup = make_setup(deck);
  std::printf("resolved deck\n%s\n", write_deck(deck).c_str());
  print_parameters(setup);
  print_flops(setup);
  print_saved(setup);
  print_memory(setup, plan_memory(setup.buffers, setup.units, setup.slots,
                                  static_cast<std::size_t>(deck.machine.workspace_mib) << 20, RunKind::training));
}

}  // namespace forge
