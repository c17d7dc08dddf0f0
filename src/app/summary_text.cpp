#include "app/summary_text.hpp"

#include "app/device_fit.hpp"
#include "app/job.hpp"
#include "config/keys.hpp"
#include "config/recompute.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "nn/units.plan.hpp"
#include "train/job_report.hpp"

namespace forge {

namespace {

std::string number(std::int64_t n) {
  return std::to_string(n);
}

std::string value_of(const Deck& deck, const char* section, const char* name) {
  return value_text(*find_key(section, name), deck);
}

std::string levels(const MeshShape& m) {
  if (!m.two_level_cp()) return "";
  return " (keys go round " + number(m.cp / m.cp_inner) + ", " + number(m.cp_inner) + " exchange heads)";
}

// Of sums of gradients.
std::string sum_levels(const MeshShape& m) {
  const int nodes = std::max(m.shard_nodes, m.expert_shard_nodes);
  return nodes > 1 ? " (sums in two levels over " + number(nodes) + " nodes)" : "";
}

std::string layout(const RunSetup& s) {
  const MeshShape& m = s.mesh;
  std::string text = counted(m.world(), "rank") + " = pp " + number(m.pp) + " x dp_replicate " +
                     number(m.dp_replicate) + " x dp_shard " + number(m.dp_shard) + " x cp " + number(m.cp) +
                     levels(m) + " x tp " + number(m.tp);
  if (s.spec.E() > 0)
    text += "; experts: pp " + number(m.pp) + " x edp " + number(m.edp) + " x ep " + number(m.ep) + " x etp " +
            number(m.etp);
  return text;
}

std::string training(const RunSetup& s) {
  const Deck& d = s.deck;
  const double tokens = static_cast<double>(s.tokens_through(d.train.steps));
  return counted(d.train.steps, "step") + ", " + format_count(tokens) + " tokens; " +
         value_of(d, "train", "precision") + ", zero_stage " + number(d.train.zero_stage) + sum_levels(s.mesh) +
         ", recompute " + recompute_text(d.train) + ", schedule " + s.schedule.name +
         (d.train.overlap == Overlap::pairs ? " in pairs" : "");
}

}  // namespace

std::string warning_lines(const std::vector<std::string>& warnings) {
  std::string text;
  for (const std::string& warning : warnings) text += titled_line("warning", warning);
  return text;
}

std::string summary_text(const RunSetup& s, const std::vector<MemoryPlan>& memory) {
  const MemoryPlan& largest = largest_of(memory);
  std::size_t all = 0;
  for (const MemoryPlan& plan : memory) all += plan.total() * to_size(s.mesh.world() / s.mesh.pp);
  std::string experts;
  if (s.spec.E() > 0)
    experts = ", E " + number(s.spec.E()) + "; " + format_count(static_cast<double>(active_parameter_count(s.spec))) +
              " parameters at work for a token";
  std::string text = titled_line("model", model_text(s) + experts);
  text += titled_line("layout", layout(s));
  text += titled_line("batch", batch_text(s));
  text += titled_line("training", training(s));
  text += titled_line("work", work_text(s));
  const std::string which = s.mesh.pp > 1 ? "; the largest: pp rank " + number(&largest - memory.data()) : "";
  text += titled_line("memory", memory_text(largest.bytes) + which);
  text += titled_line("in all", format_bytes(all) + " on all ranks together");
  return text + titled_line("fits on", fitting_gpus(rank_memory(s, RunKind::training)));
}

}  // namespace forge
