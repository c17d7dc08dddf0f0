#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "plan/tasks.hpp"
#include "predict/simulation.hpp"

namespace forge {

// The parts of a task's time.
enum class CostPart : std::uint8_t {
  products,
  attention,
  rows,  // kernels over rows, whose time the memory decides
  tp,    // collectives of a layer, which its kernels wait for
  cp,
  ep,
  parameters,  // collectives behind or ahead of the layers
  gradients,
  transfers,
  scalars,
  optimizer
};
inline constexpr int cost_part_count = 11;
std::string_view name_of(CostPart part);

struct TaskCost {
  std::array<double, cost_part_count> seconds{};
  double host = 0;   // of the host, for launches
  double flops = 0;  // of products and attention
  // The collectives, in their order; the rest of all seconds is computed behind the last.
  std::shared_ptr<const Wires> wires = nullptr;

  double& of(CostPart part) { return seconds[static_cast<std::size_t>(part)]; }
  double of(CostPart part) const { return seconds[static_cast<std::size_t>(part)]; }
  double total() const;
};
// The rest of a task that begins with another one's work.
TaskCost operator-(TaskCost a, const TaskCost& b);
using CostOf = std::function<TaskCost(const RankShare& share, const Task& task)>;

// A rank's tasks as instructions: on the streams that the executor, parameter_gather, gradient_sync and transfers of
// parallel/ give them to, with the events that they record and wait for. `world`: ranks of the mesh. Of other programs
// (Program of predict/machine.hpp): work that runs behind computation, and a transfer's part of the compute stream.
struct StreamUse {
  bool gradients_behind = true, shards_at_once = false;
  double transfer = 0;
};
// Whether shards_at_once takes a unit's gathers and sums together with other units': each comes once a step.
bool is_shared_at_once(const LocalUnit& unit);
// The task whose cost the instruction of a task has. With shards_at_once: the gather of all such units, where one is
// gathered, and their sum, where sums are waited for, as tasks without a unit.
Task costed_task(const RankShare& share, const Task& task, const StreamUse& use);
std::vector<Instruction> step_program(const RankShare& share, const std::vector<Task>& tasks, const Schedule& schedule,
                                      int world, const CostOf& cost, StreamUse use = {});

}  // namespace forge
