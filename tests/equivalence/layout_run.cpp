#include "layout_run.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "../device_values.hpp"
#include "core/normal.hpp"
#include "device/device_memory.hpp"
#include "models.hpp"
#include "operation_record.hpp"
#include "pair_references.hpp"
#include "parallel/whole_tensors.hpp"
#include "plan/memory.hpp"
#include "plan/placement.hpp"
#include "plan/traffic.hpp"
#include "timeline_problem.hpp"
#include "train/batch_feed.hpp"
#include "train/trainer.hpp"

namespace forge::test {

namespace {

// The run's own initial values, but vectors differ from element to element too: with weights of norms that are all 1,
// and biases that are all 0, much of what could go wrong would not be seen. Beside experts biases are small: larger
// ones make all tokens so much alike that no router sends any of them to some expert.
template <class T>
void draw_vectors(Session<T>& session, std::uint64_t seed) {
  const bool experts = session.setup().spec.E() > 0;
  session.load([&](ParameterStorage<T>& storage, Stream& stream) {
    for (std::size_t u = 0; u < storage.size(); ++u)
      storage.fill(stream, u, [&](const Parameter& p, const Range&) {
        const bool is_bias = p.shape.size() == 1 && p.initial == Initial::zeros;
        const double size = experts && is_bias ? 0.02 : 0.2;
        return [&p, seed, size, key = hash_of(p.name)](std::int64_t element) {
          const double drawn =
              p.initial == Initial::uniform ? uniform_values(seed, p)(element) : initial_values(seed, p)(element);
          // Where an adapter's B is 0, its A has no gradient.
          const bool moves = p.shape.size() == 1 || p.initial == Initial::zeros;
          return !moves ? drawn : drawn + size * normal(key, static_cast<std::uint64_t>(element));
        };
      });
  });
}

constexpr std::int64_t piece_elements = 200;  // several pieces of most tensors

template <class T>
Tensors collect(const RunSetup& setup, Session<T>& session, TensorSource source) {
  WholeTensors<T> tensors(session.storage(), session.mesh(), nullptr, piece_elements);
  Tensors whole;
  for (const Unit& unit : setup.units)
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      if (unit.frozen && source == TensorSource::gradients) continue;
      const auto values = tensors.collect(unit, i, source, session.stream());
      if (tensors.receives()) whole[unit.parameters[i].name].assign(values.begin(), values.end());
    }
  return whole;
}

// A step that gradients of step 1 in FP8 are scaled by: with none before most of them are too small for a format.
template <class T>
void set_history(Session<T>& session) {
  const View<float, 2>& entries = session.amax_history().entries;
  std::vector<float> values(static_cast<std::size_t>(entries.size()));
  for (std::int64_t r = 0; r < entries.rows(); ++r)
    values[static_cast<std::size_t>(r * entries.columns())] =
        std::array{4.f, 0x1p-6f, 0.25f}[static_cast<std::size_t>(r % 3)];
  set_values(session.stream(), line_of(entries), values);
}

// All that this rank holds, copies included, against whole tensors.
template <class T>
Deviations deviations(Session<T>& session, TensorSource source, const Tensors& one) {
  Deviations result;
  for (std::size_t u = 0; u < session.storage().size(); ++u) {
    const LocalUnit& unit = session.storage().local(u);
    const auto& s = session.storage().unit(u);
    if (unit.frozen && source == TensorSource::gradients) continue;
    std::vector<double> values;
    const auto read = [&](const auto& from) {
      for (const auto value : values_of(session.stream(), from)) values.push_back(static_cast<double>(value));
    };
    if (source == TensorSource::gradients)
      s.with_gradient(read);
    else if (s.master_is_copy)
      read(s.copy);
    else
      read(s.master);
    const auto distance = [&](const ElementRun& run, std::int64_t i) {
      const auto found = one.find(unit.parameters[run.piece->parameter].name);
      const auto at = static_cast<std::size_t>(run.global + i);
      if (found == one.end() || at >= found->second.size()) return HUGE_VAL;
      const double value = values[static_cast<std::size_t>(run.local - s.state.begin + i)];
      const double d = std::abs(value - found->second[at]);
      return std::isnan(d) ? HUGE_VAL : d;
    };
    for (const ElementRun& run : runs_of(unit, s.state)) {
      Deviation& deviation = result[unit.parameters[run.piece->parameter].name];
      for (std::int64_t i = 0; i < run.count; ++i) deviation.largest = std::max(deviation.largest, distance(run, i));
    }
    for (const Range& counted : s.counted)
      for (const ElementRun& run : runs_of(unit, counted)) {
        Deviation& deviation = result[unit.parameters[run.piece->parameter].name];
        deviation.owned += run.count;
        for (std::int64_t i = 0; i < run.count; ++i) deviation.squares += distance(run, i) * distance(run, i);
      }
  }
  return result;
}

// Keeps what it sees, or has everything follow a recording.
class Tape : public RoutingTape {
 public:
  Tape(Routing& recorded, const Routing* replayed) : recorded_(recorded), replayed_(replayed) {}

  bool visit(std::int64_t layer, View<const std::int64_t, 1> samples, View<const std::int32_t, 1> positions,
             View<std::int32_t, 2> choices) override {
    for (std::int64_t r = 0; r < choices.rows(); ++r) {
      const std::array<std::int64_t, 3> key{layer, samples[r], positions[r]};
      if (replayed_) {
        const auto& row = replayed_->at(key);
        std::copy(row.begin(), row.end(), choices.row(r));
      }
      const std::vector<std::int32_t> row(choices.row(r), choices.row(r) + choices.columns());
      const auto [place, fresh] = recorded_.try_emplace(key, row);
      require(fresh || place->second == row, "a row was routed to other experts when it was recomputed");
    }
    return replayed_ != nullptr;
  }

 private:
  Routing& recorded_;
  const Routing* replayed_;
};

std::string memory_problem(const Arena& arena, const MemoryPlan& plan) {
  std::ostringstream text;
  if (arena.high_water() != plan.total())
    text << "planned " << plan.total() << " B (" << plan.peak << "), high-water mark " << arena.high_water() << " B";
  for (int c = 0; c < category_count && text.tellp() > 0; ++c) {
    const auto category = static_cast<Category>(c);
    if (arena.at_high_water(category) != plan.of(category))
      text << "; " << name_of(category) << " " << plan.of(category) << " planned, " << arena.at_high_water(category);
  }
  return text.str();
}

// Norms by unit travel with the update, after the gradients.
std::int64_t bytes_of_norms(const RunSetup& setup) {
  const GroupSizes sizes = group_sizes(setup.spec, setup.mesh, setup.share);
  std::int64_t bytes = 0;
  for (const Sent& sent : sends_of(setup.buffers, setup.share, {TaskOp::unit_norms, {}}))
    if (setup.share.reports_norms) bytes += bytes_of(sent, sizes);
  return bytes;
}

// All-gathers of frozen weights behind their initialisation, which no update repeats: of a group what the rank sent.
std::int64_t bytes_of_frozen(const RunSetup& setup, Group group) {
  const GroupSizes sizes = group_sizes(setup.spec, setup.mesh, setup.share);
  std::int64_t bytes = 0;
  for (const Task& gather : gather_tasks(setup.share)) {
    const LocalUnit& unit = setup.share.units[gather.unit];
    if (!unit.frozen || unit.zero.stage == 3) continue;
    for (const Sent& sent : sends_of(setup.buffers, setup.share, gather))
      if (sent.group == group && sizes[static_cast<std::size_t>(group)] > 1) bytes += bytes_of(sent, sizes);
  }
  return bytes;
}

// What this rank has sent, against the prediction for a step. Parameters that are gathered once after an update were
// gathered after their initialisation instead.
// `updates`: how many there were; only they send matrices, and the largest magnitudes of weights that are gathered as
// codes, which were also sent with the first weights (`started`).
std::string traffic_problem(const Mesh& mesh, const RunSetup& setup, std::int64_t updates,
                            const std::vector<std::pair<std::string, Traffic>>& started) {
  const auto plan = plan_traffic(setup.buffers, setup.spec, setup.mesh, setup.share, setup.schedule_of(1));
  const auto sent = mesh.traffic();
  if (plan.size() != sent.size()) return "other groups than those whose traffic is planned";
  std::ostringstream text;
  for (std::size_t g = 0; g < plan.size() && text.tellp() == 0; ++g)
    for (int c = 0; c < collective_count; ++c) {
      const auto i = static_cast<std::size_t>(c);
      const auto &planned = plan[g].second, &counted = sent[g].second;
      const bool matrices = static_cast<Group>(g) == Group::matrices || static_cast<Group>(g) == Group::expert_matrices;
      if (!matrices && updates > 0) continue;
      const bool later =
          static_cast<Group>(g) == Group::scalars && static_cast<Collective>(c) == Collective::all_reduce;
      const std::int64_t bytes = matrices ? updates * planned.bytes[i] + started[g].second.bytes[i]
                                          : planned.bytes[i] - (later ? bytes_of_norms(setup) : 0) +
                                                (static_cast<Collective>(c) == Collective::all_gather
                                                     ? bytes_of_frozen(setup, static_cast<Group>(g))
                                                     : 0);
      // What dropless dispatch sends depends on the router; where all rows are gathered, on its rounds.
      const MoeShape moe = moe_shape(setup.buffers);
      const bool gathers = static_cast<Collective>(c) == Collective::all_gather;
      // So do the largest magnitudes of experts' rows in FP8.
      const bool amaxes = gathers && setup.buffers.rounding.experts, known = gathers && !amaxes;
      const bool one_round = moe.round_rows >= moe.rows * moe.sources * std::min(moe.chosen, moe.experts_here);
      const bool routed =
          (plan[g].first.starts_with("ep") || plan[g].first == "etp") && (moe.gathers ? !one_round || amaxes : !known);
      if (plan[g].first != sent[g].first || (!routed && bytes != counted.bytes[i]))
        text << sent[g].first << " sent " << counted.bytes[i] << " B by " << name_of(static_cast<Collective>(c)) << ", "
             << bytes << " B are planned for " << plan[g].first << "; ";
    }
  return text.str();
}

// Other nodes of a row's experts, once each, over all rows that were routed.
std::int64_t records_of(const RunSetup& setup, const Routing& routing) {
  const int here = setup.mesh.ep_node_ranks();
  const std::int64_t experts = setup.spec.E() / setup.mesh.ep_nodes, own = setup.rank % setup.mesh.ep / here;
  std::int64_t count = 0;
  for (const auto& [row, chosen] : routing) {
    std::set<std::int64_t> nodes;
    for (const std::int32_t e : chosen)
      if (e >= 0 && e / experts != own) nodes.insert(e / experts);
    count += static_cast<std::int64_t>(nodes.size());
  }
  return count;
}

// Every token of the step is counted once by its layer's router, also where its forward pass was recomputed.
std::string load_problem(const RunSetup& setup, const LabelCounts& labels, const StepResult& step) {
  const auto assignments = static_cast<double>(labels.tokens * setup.spec.experts_per_token());
  for (const RouterReport& router : step.routers)
    if (router.assignments() != assignments)
      return "layer " + std::to_string(router.layer) + " counts " + std::to_string(router.assignments()) +
             " assignments of " + std::to_string(assignments);
  return "";
}

template <class T>
void train(const RunSetup& setup, Session<T>& session, const TrainingData& data, LayoutResult& result) {
  std::vector<StepRecord> records;
  Trainer<T>(session, data, 1, TrainingLog(nullptr, &records)).run();
  for (const StepRecord& record : records) {
    result.losses.push_back(record.loss);
    result.total_losses.push_back(record.total_loss);
    result.norms.push_back(record.grad_norm);
    if (record.logits) {
      result.reports.push_back(record.logits->largest);
      result.clipped_heads += record.logits->clipped_heads;
    }
    if (record.pairs) result.reports.insert(result.reports.end(), {record.pairs->margin, record.pairs->accuracy});
    for (const NormReport& unit : record.norms) {
      result.reports.push_back(unit.weights);
      result.reports.push_back(unit.update);
    }
    for (const RouterReport& r : record.routers) {
      std::vector<double>& to = result.router_reports;
      to.insert(to.end(), r.load.begin(), r.load.end());
      to.insert(to.end(), {r.dropped, r.balance_loss, r.z_loss, r.bias_min, r.bias_max});
    }
    // Of a mixture, each source's loss, too.
    for (const SourceReport& source : record.sources)
      result.source_losses.push_back(source.labels > 0 ? source.loss : 0);
  }
  ValidationBatches batches = validation_batches(setup, data);
  for (ValidationSet& set : validation_sets(setup, data, batches))
    result.validation_loss += evaluate_set(session, set).loss;
}

// Parameters and states that a run begins with.
template <class T>
void begin(Session<T>& session, RunKind kind) {
  const Deck& deck = session.setup().deck;
  if (kind == RunKind::training && !deck.model.adapter.on())
    session.initialise();
  else
    draw_vectors(session, deck.train.seed);
  if (session.setup().spec.options.router_bias) session.routers().set_biases(session.stream(), starting_biases(deck));
  if (!session.amax_history().entries.empty()) set_history(session);
}

template <class T>
LayoutResult run_typed(std::unique_ptr<Communicator> world, const Deck& deck, const RunOptions& options) {
  const RunSetup setup =
      on_devices(make_setup(deck, world->rank(), options.kernels), options.codes ? device_info().capability : 0);
  const RunKind kind = options.train_steps > 0 ? RunKind::training : RunKind::gradients;
  const MemoryPlan plan =
      plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, kind, setup.smaller);
  LayoutResult result;
  TrainingData data(setup);
  if (deck.preference.on()) {
    Mesh scored(world->duplicate(), setup.mesh, groups_of(setup));
    Session<T> session(setup, plan.total(), kind, scored, 1);
    begin(session, kind);
    result.texts = set_references(session, data, options.references);
  }
  Mesh mesh(std::move(world), setup.mesh, groups_of(setup));
  Session<T> session(setup, plan.total(), kind, mesh, 1);
  begin(session, kind);
  const auto started = mesh.traffic();
  {
    Tape tape(result.routing, options.routing);
    if (setup.spec.E() > 0) session.set_routing_tape(&tape);
    const FirstBatch first(setup, data, mesh);
    BatchFeed feed(first.batch);
    OperationRecord operations(mesh, session.stream(), {setup, options.alike, options.routing != nullptr});
    session.set_operation_tape(&operations);
    session.timeline().begin(session.stream());
    session.compute_gradients(feed, 1, first.labels);
    const auto spans = session.timeline().end();
    session.set_routing_tape(nullptr);
    session.set_operation_tape(nullptr);
    const StepResult step = session.read_step(first.labels);
    result.loss = step.loss;
    result.total_loss = step.total_loss;
    result.grad_norm = step.grad_norm;
    result.amaxes = operations.amaxes;
    if (const View<float, 1>& seen = session.amax_history().step; !seen.empty())
      for (const float amax : values_of(session.stream(), seen)) result.amaxes.insert(amax);
    result.problem = load_problem(setup, first.labels, step);
    if (result.problem.empty()) result.problem = operations_problem(setup, operations, spans);
    const bool in_pairs = deck.train.overlap == Overlap::pairs;  // whose passes take turns
    if (result.problem.empty() && !in_pairs) result.problem = timeline_problem(setup, spans);
  }
  const bool peak_in_update =
      plan.peak == name_of(TaskOp::compute_matrices) || plan.peak == name_of(TaskOp::update_factored);
  if (result.problem.empty() && !peak_in_update) result.problem = memory_problem(session.arena(), plan);
  if (result.problem.empty()) result.problem = traffic_problem(mesh, setup, 0, started);
  if (setup.mesh.ep_nodes > 1) result.records = records_of(setup, result.routing);
  result.rail_bytes = mesh.of(Group::ep_rail).traffic().total_bytes();
  if (options.whole) result.gradients = collect(setup, session, TensorSource::gradients);
  if (options.one) result.gradient_deviations = deviations(session, TensorSource::gradients, options.one->gradients);
  if (options.train_steps == 0) return result;
  require(deck.train.steps == options.train_steps, "a layout trains for as many steps as its deck says");
  train(setup, session, data, result);
  if (result.problem.empty()) result.problem = traffic_problem(mesh, setup, options.train_steps, started);
  if (result.problem.empty()) result.problem = memory_problem(session.arena(), plan);
  if (options.whole) result.parameters = collect(setup, session, TensorSource::parameters);
  if (options.one) result.parameter_deviations = deviations(session, TensorSource::parameters, options.one->parameters);
  return result;
}

}  // namespace

LayoutResult run_layout(std::unique_ptr<Communicator> world, const Deck& deck, const RunOptions& options) {
  return with_compute_type(precision_of(deck),
                           [&](auto type) { return run_typed<decltype(type)>(std::move(world), deck, options); });
}

Tensors initial_tensors(std::unique_ptr<Communicator> world, const Deck& deck) {
  const RunSetup setup = make_setup(deck, world->rank());
  Mesh mesh(std::move(world), setup.mesh, groups_of(setup));
  const MemoryPlan plan =
      plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, RunKind::training);
  Session<double> session(setup, plan.total(), RunKind::training, mesh, 1);
  session.initialise();
  return collect(setup, session, TensorSource::parameters);
}

}  // namespace forge::test
