#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "nn/segments.plan.hpp"
#include "plan/placement.hpp"
#include "plan/tasks.hpp"
#include "predict/machine.hpp"
#include "predict/step_program.hpp"

namespace forge {

// Seconds on a machine.
double seconds_of(const Machine& machine, const Product& p);
double seconds_of(const Machine& machine, const RowKernel& r);

// Which direction of its links a call takes: transfers go one way.
enum class Way { both, out, in };
// Adds the calls of a task, which has no other ones.
void add_sends(TaskCost& cost, const Machine& machine, const std::vector<Sent>& calls,
               const std::array<Placement, group_count>& places, Way way);

// Rows of the experts of a rank with the context's expert_load, over the mean's: less than it where rows or capacity
// end.
double load_of_busiest(const BufferContext& busiest);

// The costs of layers on one rank of a mesh.
struct LayerCosts {
  const Machine& machine;
  const BufferContext& context;
  std::string_view attention;                        // the kernel
  const std::array<Placement, group_count>& places;  // of the rank's groups
  int cp_rank = 0;

  // The cost of a pass, its collectives included.
  TaskCost of(const LayerPass& pass) const;
};

}  // namespace forge
