#include "plan/memory_course.hpp"

#include <numeric>

#include "plan/frames.hpp"
#include "plan/rank_memory.hpp"
#include "plan/slots.hpp"

namespace forge {

namespace {

std::size_t sum_of(const CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

// Of one microbatch in a slot.
CategoryBytes slot_bytes(const RunSetup& s, std::size_t region, std::size_t chunk) {
  CategoryBytes bytes{};
  for (const SlotPart& part :
       slot_parts(static_cast<Region>(region), s.buffers, s.share.chunks[chunk], s.share.layers[chunk], true))
    bytes[to_size(part.category)] += part.bytes;
  return bytes;
}

// Adds to `used` what slots hold in each task; returns what all slots take.
std::size_t add_slots(const RunSetup& s, const RunTasks& run, std::vector<CategoryBytes>& used) {
  std::size_t held = 0;
  std::array<std::vector<CategoryBytes>, region_count> of_slot;
  for (std::size_t r = 0; r < region_count; ++r)
    for (std::size_t chunk = 0; chunk < s.share.chunks.size(); ++chunk) {
      of_slot[r].push_back(slot_bytes(s, r, chunk));
      held += sum_of(of_slot[r].back()) * to_size(run.tables.front()[r].counts[chunk]);
    }
  for (const Lifetime& life : lifetimes_of(run.tasks.front())) {
    const CategoryBytes& bytes = of_slot[to_size(life.region)][to_size(life.chunk)];
    for (int i = life.first; i <= life.last; ++i)
      for (std::size_t c = 0; c < bytes.size(); ++c) used[to_size(i)][c] += bytes[c];
  }
  return held;
}

}  // namespace

std::size_t MemoryCourse::bytes(std::size_t task) const {
  return sum_of(used[task]) + idle[task];
}

MemoryCourse memory_course(const RunSetup& s) {
  const MemoryPlan resident = resident_memory(s.buffers, s.share, RunKind::training, library_bytes(s.deck));
  const RunTasks run = run_tasks(s.share, s.schedule, s.smaller, s.buffers.recompute, true);
  MemoryCourse course;
  course.tasks = run.tasks.front();
  for (const Task& task : update_tasks(s.share, s.spec.options.router_bias)) course.tasks.push_back(task);
  std::vector<CategoryBytes> held(course.tasks.size());
  const std::size_t slots = add_slots(s, run, held);
  Frames frames(s.buffers, s.share);
  for (std::size_t t = 0; t < course.tasks.size(); ++t) {
    CategoryBytes& now = course.used.emplace_back(resident.bytes);
    for (std::size_t c = 0; c < now.size(); ++c) now[c] += held[t][c];
    course.idle.push_back(slots - sum_of(held[t]));
    const std::size_t before = frames.most;
    now[to_size(Category::workspace)] += frames.run(course.tasks[t]);
    if (frames.most > before) course.peak = t;
  }
  return course;
}

RunSetup setup_of_stage(const RunSetup& setup, int pp_rank) {
  RunSetup s = setup;
  s.share = rank_share(setup.model_share(), pp_rank * (setup.mesh.world() / setup.mesh.pp));
  return s;
}

}  // namespace forge
