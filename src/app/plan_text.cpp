#include "app/plan_text.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "config/dispatch_words.hpp"
#include "config/keys.hpp"
#include "config/recompute.hpp"
#include "config/schedule_name.hpp"
#include "core/bytes.hpp"
#include "core/parse.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

std::string seconds_text(double s) {
  return s >= 1 ? formatted("%.3f s", s) : s >= 1e-3 ? formatted("%.2f ms", 1e3 * s) : formatted("%.1f us", 1e6 * s);
}

// What the busiest rank's compute stream does, and waits for, by name; together the step.
std::vector<std::pair<std::string, double>> shares_of(const Prediction& p) {
  std::vector<std::pair<std::string, double>> list;
  for (int i = 0; i < cost_part_count; ++i) {
    const auto part = static_cast<CostPart>(i);
    if (p.part[to_size(i)] > 0) list.emplace_back(name_of(part), p.part[to_size(i)]);
  }
  if (p.slowed > 1e-6) list.emplace_back("slowed by other streams", p.slowed);
  constexpr const char* waits[lane_count] = {"waiting for the host", "waiting for parameters", "waiting for gradients",
                                             "waiting for other stages", "waiting for layers' exchanges"};
  for (int l = 0; l < lane_count; ++l) {
    if (const double wait = p.waited[to_size(l)]; wait > 1e-9) list.emplace_back(waits[l], wait);
  }
  return list;
}

constexpr Lane other_lanes[] = {Lane::parameters, Lane::gradients, Lane::transfers, Lane::exchanges};
constexpr const char* other_names[] = {"parameters", "gradients", "transfers", "exchanges"};

// Seconds that the fullest direction of each link is needed in a step.
struct WireSeconds {
  double nvlink, nic;
};
WireSeconds wire_of(const Prediction& p) {
  const auto most = [&](Link a, Link b) { return std::max(p.wire[to_size(a)], p.wire[to_size(b)]); };
  return {most(Link::nvlink_out, Link::nvlink_in), most(Link::nic_out, Link::nic_in)};
}

// "parameters 1.2 ms, gradients …": pairs of passes alone have exchanges.
std::string streams_text(const Prediction& p) {
  std::string text;
  for (std::size_t l = 0; l < std::size(other_lanes); ++l) {
    const double seconds = p.behind[to_size(other_lanes[l])];
    if (other_lanes[l] == Lane::exchanges && seconds == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(other_names[l]) + " " + seconds_text(seconds);
  }
  return text;
}

std::string part_table(const Prediction& p) {
  std::string text = formatted("time of pp rank %d, whose compute stream is busy longest\n", p.stage);
  for (const auto& [name, seconds] : shares_of(p))
    text +=
        formatted("  %-26s %12s %5.1f %%\n", name.c_str(), seconds_text(seconds).c_str(), 100 * seconds / p.seconds);
  double behind = 0;
  for (const Lane lane : other_lanes) behind += p.behind[to_size(lane)];
  if (behind > 0)
    text += "  on other streams: " + streams_text(p) +
            formatted("; %.0f %% of it behind computation\n", 100 * p.hidden / behind);
  const auto [nvlink, nic] = wire_of(p);
  if (nvlink + nic > 0)
    text += formatted("  links need: inside the node %s, between nodes %s\n", seconds_text(nvlink).c_str(),
                      seconds_text(nic).c_str());
  return text;
}

std::string memory_table(const Outcome& o) {
  std::string text = "memory of the rank that needs most\n";
  for (int c = 0; c < category_count; ++c)
    text += formatted("  %-26s %14s\n", std::string(name_of(static_cast<Category>(c))).c_str(),
                      format_bytes(o.memory.plan.of(static_cast<Category>(c))).c_str());
  for (const Allowance& a : o.memory.libraries)
    text += formatted("  %-26s %14s  allowance\n", a.name.c_str(), format_bytes(a.bytes).c_str());
  return text + formatted("  %-26s %14s of %s: %s\n", "all", format_bytes(o.memory.total()).c_str(),
                          format_bytes(o.usable).c_str(), o.fits() ? "fits" : "doesn't fit");
}

std::string mesh_text(const MeshDeck& m, bool experts) {
  std::string text = formatted("pp %lld, dp %lld x %lld, cp %lld, tp %lld", static_cast<long long>(m.pp),
                               static_cast<long long>(m.dp_replicate), static_cast<long long>(m.dp_shard),
                               static_cast<long long>(m.cp), static_cast<long long>(m.tp));
  if (m.cp > 1 && m.cp_method == CpMethod::two_level) text += " in two levels";
  if (experts) text += formatted(", ep %lld, etp %lld", static_cast<long long>(m.ep), static_cast<long long>(m.etp));
  return text;
}

// How uneven the routers are taken to be, and why memory doesn't follow.
std::string experts_text(const Outcome& o) {
  if (o.deck.model.experts == 0) return "";
  if (o.time.expert_load <= 1)
    return "experts   all ranks' get as many rows; --imbalance X: the busiest's get X times the mean\n";
  return formatted(
      "experts   the busiest ranks' get %.2f x the mean's rows, in %lld round%s; memory is of the rounds, and stays\n",
      o.time.expert_load, static_cast<long long>(o.time.expert_rounds), o.time.expert_rounds > 1 ? "s" : "");
}

}  // namespace

const char* rank_word(const Machine& machine) {
  return machine.cores_per_node == 0 ? "GPU" : "rank";
}

std::string binding_part(const Outcome& o) {
  const auto list = shares_of(o.time);
  const auto most =
      std::max_element(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return formatted("%s %.0f %%", most->first.c_str(), 100 * most->second / o.time.seconds);
}

std::string plan_text(const Machine& machine, const Outcome& o) {
  const Prediction& p = o.time;
  const char* const rank = rank_word(machine);
  const std::string need = format_bytes(o.memory.total()), usable = format_bytes(o.usable);
  std::string text = o.fits()
                         ? ""
                         : formatted("memory    doesn't fit: %s a %s, which has %s; the time is that of a larger one\n",
                                     need.c_str(), rank, usable.c_str());
  text += formatted("machine   %s: %s\n", machine.name.c_str(), machine.description.c_str());
  if (o.fits()) text += formatted("memory    fits: %s of %s a %s\n", need.c_str(), usable.c_str(), rank);
  text += formatted("a step    %s (%s to %s: +-%.0f %%)\n", seconds_text(p.seconds).c_str(),
                    seconds_text(p.low).c_str(), seconds_text(p.high).c_str(), 100 * machine.uncertainty);
  text += formatted("tokens    %.0f a second and %s, %.0f of all %lld; mfu %.1f %%, with recomputation %.1f %%\n",
                    p.tokens_per_second, rank, p.tokens_per_second * static_cast<double>(ranks_of(o.deck.mesh)),
                    static_cast<long long>(ranks_of(o.deck.mesh)), 100 * p.mfu, 100 * p.hfu);
  if (p.clock < 1)
    text += formatted("power     its limit leaves products and attention %.0f %% of their clock\n", 100 * p.clock);
  return text + experts_text(o) + formatted("binds     %s\n\n", binding_part(o).c_str()) + part_table(p) + "\n" +
         memory_table(o);
}

std::string neighbours_text(const Outcome& o, const std::vector<PredictedNeighbour>& neighbours, std::size_t most) {
  if (neighbours.empty()) return "one change\n  none is legal\n";
  std::string text = "one change: the fastest, and the best of each other kind\n";
  std::set<std::string> kinds;
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    const PredictedNeighbour& n = neighbours[i];
    if (!kinds.insert(n.of.kind).second && i >= most) continue;
    text += formatted("  %+7.1f %% %10s %10s  %s%s\n", 100 * (o.time.seconds / n.seconds - 1),
                      seconds_text(n.seconds).c_str(), format_bytes(n.bytes).c_str(), n.of.change.c_str(),
                      n.fits ? "" : "  (doesn't fit)");
  }
  return text;
}

namespace {

// Keys that the search gives a value.
bool is_searched(const Key& key) {
  constexpr std::array searched{"schedule.name",
                                "schedule.virtual_stages",
                                "schedule.split",
                                "train.zero_stage",
                                "train.microbatch_sequences",
                                "train.recompute",
                                "train.recompute_full_layers",
                                "train.overlap",
                                "train.accumulate",
                                "train.reduction",
                                "train.gather",
                                "train.fp8_gather",
                                "model.dispatch"};
  if (key.section == "mesh") return true;
  return std::find(searched.begin(), searched.end(), key.qualified()) != searched.end();
}

// A number as it is.
std::string json_of_value(const std::string& text) {
  std::int64_t number = 0;
  return reads_as(text, number) ? text : json_of(text);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> layout_values(const Deck& deck) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const Key& key : all_keys())
    if (is_searched(key)) list.emplace_back(key.qualified(), value_text(key, deck));
  return list;
}

std::string search_text(const Machine& machine, const SearchResult& r) {
  std::string text = formatted(
      "%lld layouts: %lld have no room, %lld are bounded by better ones, %lld were simulated, %lld are not legal, %lld "
      "were left when time was up\n",
      static_cast<long long>(r.layouts), static_cast<long long>(r.without_room), static_cast<long long>(r.bounded),
      static_cast<long long>(r.simulated), static_cast<long long>(r.refused), static_cast<long long>(r.left));
  if (r.best.empty() && r.refused == r.layouts)
    return text +
           "no layout of so many ranks is legal: the batch and the model share out over none of them "
           "(docs/parallelism.md, \"Legal layouts\")\n";
  if (r.best.empty() && r.left > 0)
    return text + "none of those that were looked at fits on " + machine.name +
           ", and time was up before the end: more with --seconds\n";
  if (r.best.empty()) return text + "no layout fits on " + machine.name + "\n";
  text += formatted("tokens/s and memory are those of a %s\n  %4s %10s %10s %6s %10s  %s\n", rank_word(machine), "",
                    "step", "tokens/s", "mfu", "memory", "layout; binds");
  for (std::size_t i = 0; i < r.best.size(); ++i) {
    const Outcome& o = r.best[i];
    text += formatted("  %4lld %10s %10.0f %5.1f%% %10s  ", static_cast<long long>(i) + 1,
                      seconds_text(o.time.seconds).c_str(), o.time.tokens_per_second, 100 * o.time.mfu,
                      format_bytes(o.memory.total()).c_str());
    text += mesh_text(o.deck.mesh, o.deck.model.experts > 0) +
            formatted("; %s x %lld%s, microbatch %lld, zero %lld, recompute %s%s%s; %s\n",
                      std::string(schedule_words[to_size(o.deck.schedule.name)]).c_str(),
                      static_cast<long long>(o.deck.schedule.virtual_stages),
                      o.deck.train.overlap == Overlap::pairs ? " in pairs" : "",
                      static_cast<long long>(o.deck.train.microbatch_sequences),
                      static_cast<long long>(o.deck.train.zero_stage), recompute_text(o.deck.train).c_str(),
                      o.deck.model.experts == 0 ? "" : ", ",
                      o.deck.model.experts == 0 ? "" : dispatch_words[to_size(o.deck.model.dispatch)],
                      binding_part(o).c_str());
  }
  return text;
}

std::string comparison_note(const Machine& machine, std::int64_t ranks) {
  const bool several = ranks > 1 && machine.cores_per_node == 0 && machine.program.is_forge();
  return several ? "no prediction for more than one GPU has been compared with a run of forge yet" : "";
}

JsonLine outcome_json(const Machine& machine, const Outcome& o) {
  const Prediction& p = o.time;
  JsonLine seconds, others, memory, all;
  for (const auto& [name, value] : shares_of(p)) seconds.add(name, value);
  for (std::size_t l = 0; l < std::size(other_lanes); ++l)
    others.add(other_names[l], p.behind[to_size(other_lanes[l])]);
  others.add("behind_computation", p.hidden);
  for (int c = 0; c < category_count; ++c)
    memory.add(name_of(static_cast<Category>(c)), o.memory.plan.of(static_cast<Category>(c)));
  for (const Allowance& a : o.memory.libraries) memory.add(a.name, a.bytes);
  all.add("machine", machine.name).add("step_seconds", p.seconds).add("low", p.low).add("high", p.high);
  all.add("tokens_per_second_per_rank", p.tokens_per_second).add("mfu", p.mfu).add("hfu", p.hfu).add("clock", p.clock);
  all.add("expert_load", p.expert_load).add("expert_rounds", p.expert_rounds);
  all.add("binds", binding_part(o)).add("busiest_pp_rank", p.stage);
  const auto [nvlink, nic] = wire_of(p);
  all.add("seconds", seconds).add("other_streams", others);
  all.add("wire_seconds", JsonLine().add("nvlink", nvlink).add("nic", nic)).add("memory", memory);
  all.add("peak_bytes", o.memory.total()).add("usable_bytes", o.usable).add("fits", o.fits());
  if (const std::string note = comparison_note(machine, ranks_of(o.deck.mesh)); !note.empty()) all.add("note", note);
  return all;
}

std::string plan_json(const Machine& machine, const Outcome& o, const std::vector<PredictedNeighbour>& neighbours,
                      const std::vector<std::string>& warnings) {
  std::vector<JsonLine> changes;
  for (const PredictedNeighbour& n : neighbours) {
    JsonLine& change = changes.emplace_back();
    change.add("kind", n.of.kind).add("change", n.of.change).add("step_seconds", n.seconds);
    change.add("peak_bytes", n.bytes).add("fits", n.fits);
  }
  return outcome_json(machine, o).add("warnings", warnings).add("one_change", changes).text();
}

JsonLine search_json(const Machine& machine, const SearchResult& r, int ranks) {
  std::vector<JsonLine> best;
  for (const Outcome& o : r.best) {
    JsonLine layout;
    for (const auto& [key, value] : layout_values(o.deck)) layout.add_raw(key, json_of_value(value));
    best.push_back(outcome_json(machine, o).add("layout", layout));
  }
  JsonLine all;
  all.add("ranks", ranks).add("layouts", r.layouts).add("without_room", r.without_room).add("bounded", r.bounded);
  all.add("simulated", r.simulated).add("refused", r.refused).add("left", r.left);
  return all.add("best", best);
}

}  // namespace forge
