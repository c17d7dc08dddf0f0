#include "layout_run.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "comm/mesh.hpp"
#include "config/write.hpp"
#include "parallel/whole_tensors.hpp"
#include "plan/memory.hpp"
#include "train/batch_feed.hpp"
#include "train/trainer.hpp"

namespace forge::test {

namespace {

MeshGroups groups_of(const RunSetup& setup) {
  MeshGroups groups;
  groups.kv_copies = kv_copies(setup.spec, setup.mesh.tp);
  if (setup.deck.model.tied_embeddings)
    groups.tied_stages = {setup.schedule.places.front().rank, setup.schedule.places.back().rank};
  return groups;
}

template <class T>
std::map<std::string, std::vector<double>> collect(const RunSetup& setup, Session<T>& session, TensorSource source) {
  WholeTensors<T> tensors(session.storage(), session.mesh(),
                          [&](int rank) { return rank_share(setup.model_share(), rank); });
  std::map<std::string, std::vector<double>> whole;
  for (const Unit& unit : setup.units)
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const auto values = tensors.collect(unit, i, source, session.stream());
      if (tensors.receives()) whole[unit.parameters[i].name].assign(values.begin(), values.end());
    }
  return whole;
}

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

template <class T>
LayoutResult run_typed(std::unique_ptr<Communicator> world, const Deck& deck, std::int64_t train_steps) {
  const RunSetup setup = make_setup(deck, world->rank());
  Mesh mesh(std::move(world), setup.mesh, groups_of(setup));
  const RunKind kind = train_steps > 0 ? RunKind::training : RunKind::gradients;
  const MemoryPlan plan = plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, kind);
  Session<T> session(setup, plan.total(), {true, kind == RunKind::training}, mesh, 1);
  session.initialise();
  const TrainingData data(setup);
  LayoutResult result;
  {
    const FirstBatch first(setup, data, mesh);
    BatchFeed feed(first.batch);
    session.compute_gradients(feed, 1, first.labels);
    const StepResult step = session.read_step(first.labels);
    result.loss = step.loss;
    result.total_loss = step.total_loss;
    result.grad_norm = step.grad_norm;
  }
  result.problem = memory_problem(session.arena(), plan);
  result.gradients = collect(setup, session, TensorSource::gradients);
  if (train_steps == 0) return result;
  std::vector<StepRecord> records;
  Trainer<T>(session, data, 1, TrainingLog(nullptr, &records)).run();
  for (const StepRecord& record : records) {
    result.losses.push_back(record.loss);
    result.norms.push_back(record.grad_norm);
  }
  result.parameters = collect(setup, session, TensorSource::parameters);
  return result;
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// max|a − b|; infinite where one has NaN or another length.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    largest = std::isnan(d) ? HUGE_VAL : std::max(largest, d);
  }
  return largest;
}

using Tensors = std::map<std::string, std::vector<double>>;

// The tensor that deviates most, against its own largest entry, but no less than a thousandth of the largest of all.
std::string tensor_difference(const Tensors& tensors, const Tensors& one, double bound) {
  if (tensors.size() != one.size()) return "tensors are missing";
  double all = 0, worst = 0;
  for (const auto& [name, values] : one) all = std::max(all, largest_of(values));
  std::string which;
  for (const auto& [name, values] : one) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return name + " is missing";
    const double d = distance(found->second, values) / std::max(largest_of(values), 1e-3 * all);
    if (!(d <= worst)) {
      worst = d;
      which = name;
    }
  }
  std::ostringstream text;
  if (!(worst <= bound)) text << which << " deviates by " << worst << " (bound " << bound << ")";
  return text.str();
}

std::string number_difference(const char* what, double value, double one, double bound) {
  std::ostringstream text;
  text.precision(17);
  if (!(std::abs(value - one) <= bound * std::abs(one))) text << what << " " << value << " instead of " << one;
  return text.str();
}

}  // namespace

LayoutResult run_layout(std::unique_ptr<Communicator> world, const Deck& deck, std::int64_t train_steps) {
  switch (deck.train.precision) {
    case PrecisionName::fp64:
      return run_typed<double>(std::move(world), deck, train_steps);
    case PrecisionName::fp32:
      return run_typed<float>(std::move(world), deck, train_steps);
    case PrecisionName::bf16:
      return run_typed<bf16>(std::move(world), deck, train_steps);
  }
  throw Error("unknown precision");
}

std::string difference(const LayoutResult& result, const LayoutResult& one, double scale) {
  const double bound = 1e-11 * scale;
  for (const std::string& text : {result.problem, number_difference("loss", result.loss, one.loss, bound),
                                  number_difference("total loss", result.total_loss, one.total_loss, bound),
                                  number_difference("gradient norm", result.grad_norm, one.grad_norm, bound)})
    if (!text.empty()) return text;
  return tensor_difference(result.gradients, one.gradients, bound);
}

std::string training_difference(const LayoutResult& result, const LayoutResult& one, double bound) {
  if (result.losses.size() != one.losses.size()) return "another number of steps";
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    const std::string step = "step " + std::to_string(i + 1) + ": ";
    for (const std::string& text : {number_difference("loss", result.losses[i], one.losses[i], bound),
                                    number_difference("gradient norm", result.norms[i], one.norms[i], bound)})
      if (!text.empty()) return step + text;
  }
  return tensor_difference(result.parameters, one.parameters, bound);
}

std::string text_of(const Deck& d) {
  std::ostringstream text;
  text << "pp " << d.mesh.pp << ", dp " << d.mesh.dp_replicate << " x " << d.mesh.dp_shard << ", cp " << d.mesh.cp
       << ", tp " << d.mesh.tp << "; zero " << d.train.zero_stage << ", accumulate "
       << static_cast<int>(d.train.accumulate) << ", gather " << static_cast<int>(d.train.gather) << ", recompute "
       << static_cast<int>(d.train.recompute) << ", schedule " << static_cast<int>(d.schedule.name) << " x "
       << d.schedule.chunks_per_stage << " " << d.schedule.split << ", cp method " << static_cast<int>(d.mesh.cp_method)
       << ", b " << d.train.microbatch_sequences << ", G " << d.train.global_batch_sequences << ", precision "
       << static_cast<int>(d.train.precision);
  return text.str();
}

}  // namespace forge::test
