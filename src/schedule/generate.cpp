#include "schedule/generate.hpp"

#include <algorithm>
#include <deque>

#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "schedule/progress.hpp"
#include "schedule/schedule_times.hpp"

namespace forge {

namespace {

using List = std::vector<Action>;

// One rank during the fill: its W's that wait, and how many pairs stand between F and W.
struct Filler {
  std::deque<Action> pending;
  int in_flight = 0;
  List list;

  void weight() {
    list.push_back(pending.front());
    pending.pop_front();
    --in_flight;
  }
  void place(const Action& action) {
    list.push_back(action);
    if (action.op == Op::forward) ++in_flight;
    if (action.op == Op::backward_input) pending.push_back({Op::backward_weight, action.chunk, action.microbatch});
  }
};

// The F, B, W of zb_v in the paper's phases, for rank r of p; what belongs to microbatches >= M is left out.
class VPhases {
 public:
  VPhases(int ranks, int rank, int microbatches) : microbatches_(microbatches) {
    const int whole = std::max(microbatches, 2 * ranks - 1);  // the phases are those of a full pipeline
    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) add(Op::forward, 0);
    for (int i = 0; i < rank; ++i) add(Op::forward, 1), add(Op::forward, 0);
    for (int i = 0; i < ranks - rank; ++i) add(Op::forward, 1), add_both(1);
    while (next_[0][0] < whole || next_[1][0] < whole) {
      if (next_[0][0] < whole) add(Op::forward, 0);
      add_both(0);
      add(Op::forward, 1);
      add_both(1);
    }
    for (int i = 0; i < rank; ++i) add(Op::backward_input, 0), add(Op::backward_input, 1);
    for (int i = 0; i < ranks - rank; ++i) add_both(0);
    for (int chunk : {1, 0})
      while (next_[chunk][2] < whole) add(Op::backward_weight, chunk);
  }
  List list;

 private:
  void add(Op op, int chunk) {
    const int m = next_[chunk][static_cast<int>(op)]++;
    if (m < microbatches_) list.push_back({op, chunk, m});
  }
  void add_both(int chunk) { add(Op::backward_input, chunk), add(Op::backward_weight, chunk); }

  int microbatches_;
  int next_[2][3] = {};  // by chunk and F, B, W: the next microbatch
};

void drop_weights(Schedule& schedule) {
  for (List& list : schedule.actions)
    std::erase_if(list, [](const Action& action) { return action.op == Op::backward_weight; });
}

// Puts W's into lists of F's and B's: in a simulation with F = B = W = 1, a rank does a W when it would otherwise stand
// still, and before an F that would have more than `limit` (chunk, microbatch) pairs between F and W on the rank.
// 1F1B's order of F and B with limit pp gives ZB-H1 (Qi et al., arXiv 2401.10241).
void fill_with_weights(Schedule& schedule, int limit) {
  Progress progress(schedule);
  std::vector<Filler> fillers(to_size(schedule.ranks));
  const auto open = [&] {
    return !progress.finished() ||
           std::any_of(fillers.begin(), fillers.end(), [](const Filler& filler) { return !filler.pending.empty(); });
  };
  while (open()) {  // one unit of time
    std::vector<int> advancing;
    bool moved = false;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      Filler& filler = fillers[to_size(rank)];
      const bool full = !progress.finished(rank) && progress.next(rank).op == Op::forward && filler.in_flight >= limit;
      if (progress.ready(rank) && !full) {
        filler.place(progress.next(rank));
        advancing.push_back(rank);
        moved = true;
      } else if (!filler.pending.empty()) {
        filler.weight();
        moved = true;
      }
    }
    for (const int rank : advancing) progress.advance(rank);
    require(moved, "schedule: the order of F and B cannot be filled with W");
  }
  for (int rank = 0; rank < schedule.ranks; ++rank)
    schedule.actions[to_size(rank)] = std::move(fillers[to_size(rank)].list);
}

// The V-shaped schedule of two chunks (Qi et al., arXiv 2405.15362): at most 2 pp chunk activations per rank, which is
// pp whole stages as in 1F1B, and no bubble in the middle when F, B and W take the same time.
Schedule zb_v(int ranks, int microbatches) {
  Schedule phases;
  phases.name = "zb_v";
  phases.ranks = ranks;
  phases.chunks_per_rank = 2;
  phases.microbatches = microbatches;
  phases.places = v_places(ranks);
  for (int rank = 0; rank < ranks; ++rank) phases.actions.push_back(VPhases(ranks, rank, microbatches).list);
  if (microbatches >= 2 * ranks - 1) return phases;
  // A pipeline that never fills: W's that stand in the way of a B are moved behind it.
  Schedule filled = phases;
  drop_weights(filled);
  fill_with_weights(filled, 2 * ranks);
  const DurationOf unit = uniform_durations(1, 1, 1);
  return timeline(filled, unit).makespan <= timeline(phases, unit).makespan ? filled : phases;
}

// A backward pass that runs alone hands B on before its W. In a pair both are one pass.
List split_alone(const List& whole) {
  List list;
  bool beside = false;
  for (const Action& action : whole) {
    list.push_back(action);
    if (action.op == Op::backward && !beside) {
      list.back().op = Op::backward_input;
      list.push_back({Op::backward_weight, action.chunk, action.microbatch});
    }
    beside = action.paired;
  }
  return list;
}

// A rank's F's and backward passes of zb_v, each in their order, side by side as in DualPipeV (DeepSeek-AI 2024, arXiv
// 2412.19437, and their repository DualPipe): 2 pp F's; then a backward pass and the next F in turn until gradients
// come at every turn; then a backward pass beside the next F, where that is of the other chunk.
List v_in_pairs(const List& passes, int ranks, int rank) {
  List forwards, backwards;
  for (const Action& action : passes) {
    if (action.op == Op::forward) forwards.push_back(action);
    if (action.op == Op::backward_input) backwards.push_back({Op::backward, action.chunk, action.microbatch});
  }
  std::size_t next = to_size(2 * ranks);
  List list(forwards.begin(), forwards.begin() + 2 * ranks);
  for (std::size_t k = 0; k < backwards.size(); ++k) {
    const bool fills = k < to_size(ranks - rank - 1);
    if (!fills && next < forwards.size() && forwards[next].chunk != backwards[k].chunk) {
      list.push_back(forwards[next++]);
      list.back().paired = true;
    }
    list.push_back(backwards[k]);
    if (fills) list.push_back(forwards[next++]);
  }
  return list;
}

// At most 2 pp + 1 chunk activations per rank. A pipeline that never fills has no pairs: it would stand still for
// longer than they save.
Schedule zb_v_in_pairs(int ranks, int microbatches) {
  Schedule schedule = zb_v(ranks, microbatches);
  if (microbatches < least_paired(ScheduleName::zb_v, ranks)) return schedule;
  for (int rank = 0; rank < ranks; ++rank) {
    List& list = schedule.actions[to_size(rank)];
    list = split_alone(v_in_pairs(list, ranks, rank));
  }
  return schedule;
}

// F and B alternate after `warmup` forwards; the rest of the backwards drains. The usual shape of 1F1B. In pairs the
// two run at once, behind one forward more: the last stage's B reads its own F.
List alternate(const List& forwards, const List& backwards, int warmup, bool pairs = false) {
  const int total = static_cast<int>(forwards.size());
  warmup = std::min(warmup + pairs, total);
  List list(forwards.begin(), forwards.begin() + warmup);
  for (int k = 0; k < total; ++k) {
    if (k + warmup < total) {
      list.push_back(forwards[to_size(k + warmup)]);
      list.back().paired = pairs;
    }
    list.push_back(backwards[to_size(k)]);
  }
  return list;
}

List all_microbatches(Op op, int microbatches) {
  List list;
  for (int m = 0; m < microbatches; ++m) list.push_back({op, 0, m});
  return list;
}

List gpipe(const ScheduleRequest& request) {
  return alternate(all_microbatches(Op::forward, request.microbatches),
                   all_microbatches(Op::backward, request.microbatches), request.microbatches);
}

// A rank has so many forwards more in flight than the next rank. A pair ends as a whole: the next rank reads the result
// of the pair before.
int ahead_of_next(const ScheduleRequest& request) {
  return request.name == ScheduleName::interleaved && request.chunks > 1 ? 2 : 1 + request.pairs;
}

List one_f_one_b(const ScheduleRequest& request, int rank, Op backward) {
  return alternate(all_microbatches(Op::forward, request.microbatches),
                   all_microbatches(backward, request.microbatches),
                   ahead_of_next(request) * (request.ranks - rank - 1), request.pairs);
}

// The order in which (chunk, microbatch) pass an interleaved rank: a group of microbatches through every chunk, then
// the next group. Backwards take the chunks from the last to the first.
List interleaved_order(const ScheduleRequest& request, int group, Op op) {
  List list;
  for (int first = 0; first < request.microbatches; first += group)
    for (int pass = 0; pass < request.chunks; ++pass)
      for (int m = first; m < std::min(first + group, request.microbatches); ++m)
        list.push_back({op, op == Op::forward ? pass : request.chunks - 1 - pass, m});
  return list;
}

List interleaved(const ScheduleRequest& request, int rank, int group) {
  if (request.chunks == 1) return one_f_one_b(request, rank, Op::backward);
  const int warmup = (request.ranks - rank - 1) * ahead_of_next(request) + (request.chunks - 1) * group;
  return alternate(interleaved_order(request, group, Op::forward), interleaved_order(request, group, Op::backward),
                   warmup, request.pairs);
}

bool group_fits(int microbatches, int group, int ranks) {
  return microbatches >= group && (microbatches % group == 0 || microbatches % group >= ranks);
}

std::string nearest_microbatches(const ScheduleRequest& request, int group) {
  std::string below, above;
  for (int m = request.microbatches - 1; m >= group && below.empty(); --m)
    if (group_fits(m, group, request.ranks)) below = std::to_string(m) + " or ";
  for (int m = request.microbatches + 1; above.empty(); ++m)
    if (group_fits(m, group, request.ranks)) above = std::to_string(m);
  return below + above;
}

// The group G of an interleaved schedule, checked.
int checked_group(const ScheduleRequest& request) {
  const int group = request.group > 0 ? request.group : request.ranks;
  if (request.chunks == 1) return group;
  const std::string numbers =
      "mesh.pp = " + std::to_string(request.ranks) + ", M = " + std::to_string(request.microbatches) + " microbatches";
  if (group < request.ranks)
    throw BadInput("schedule.name interleaved: a group has at least mesh.pp microbatches, but G = " +
                   std::to_string(group) + " with " + numbers + "; the least is " + std::to_string(request.ranks));
  if (!group_fits(request.microbatches, group, request.ranks))
    throw BadInput("schedule.name interleaved: groups of G = " + std::to_string(group) +
                   " microbatches need G <= M and M % G == 0 or M % G >= mesh.pp, but " + numbers +
                   "; nearest legal M (train.global_batch_sequences / (data-parallel ranks * "
                   "train.microbatch_sequences)): " +
                   nearest_microbatches(request, group));
  return group;
}

// The schedule of lists that a generator makes for each rank; stage k stands on rank k mod pp.
template <class F>
Schedule of_ranks(const ScheduleRequest& request, int chunks, F list) {
  Schedule schedule;
  schedule.name = name_of(request.name);
  schedule.ranks = request.ranks;
  schedule.microbatches = request.microbatches;
  schedule.chunks_per_rank = chunks;
  schedule.places = round_robin_places(schedule.ranks, chunks);
  for (int rank = 0; rank < request.ranks; ++rank) schedule.actions.push_back(list(rank));
  return schedule;
}

void check(const ScheduleRequest& request) {
  const auto positive = [](const char* what, int value) {
    if (value < 1) throw BadInput(std::string(what) + " must be at least 1, but is " + std::to_string(value));
  };
  positive("mesh.pp", request.ranks);
  positive("schedule.virtual_stages", request.chunks);
  positive(
      "the number of microbatches (train.global_batch_sequences / (data-parallel ranks * "
      "train.microbatch_sequences))",
      request.microbatches);
}

}  // namespace

Schedule generate(const ScheduleRequest& request) {
  check(request);
  switch (request.name) {
    case ScheduleName::gpipe:
      return of_ranks(request, 1, [&](int) { return gpipe(request); });
    case ScheduleName::one_f_one_b:
      return of_ranks(request, 1, [&](int rank) { return one_f_one_b(request, rank, Op::backward); });
    case ScheduleName::interleaved:
      return of_ranks(request, request.chunks,
                      [&, group = checked_group(request)](int rank) { return interleaved(request, rank, group); });
    case ScheduleName::zero_bubble: {
      if (request.pairs)
        return of_ranks(request, 1, [&](int rank) { return split_alone(one_f_one_b(request, rank, Op::backward)); });
      Schedule schedule =
          of_ranks(request, 1, [&](int rank) { return one_f_one_b(request, rank, Op::backward_input); });
      fill_with_weights(schedule, request.ranks);
      return schedule;
    }
    case ScheduleName::zb_v:
      return request.pairs ? zb_v_in_pairs(request.ranks, request.microbatches)
                           : zb_v(request.ranks, request.microbatches);
  }
  throw Error("a schedule of the deck is not in the table of schedules");
}

}  // namespace forge
