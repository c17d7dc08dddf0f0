#include "schedule/lower.hpp"

#include <map>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "schedule/schedule_times.hpp"

namespace forge {

namespace {

using List = std::vector<Action>;

// The rank of the stage that reads what this compute action makes: the next stage for F, the previous one for B; -1 for
// W and at the pipeline's ends.
int reader_stage(const Schedule& schedule, int rank, const Action& action) {
  const int stage = schedule.stage_at(rank, action.chunk);
  if (action.op == Op::forward) return stage + 1 < schedule.stages() ? stage + 1 : -1;
  return computes_input_gradient(action.op) ? stage - 1 : -1;
}

bool read_elsewhere(const Schedule& schedule, int rank, const Action& action) {
  const int reader = reader_stage(schedule, rank, action);
  return reader >= 0 && schedule.places[to_size(reader)].rank != rank;
}

// B, W -> backward where nobody else waits for B.
List fuse(const Schedule& schedule, int rank) {
  List fused;
  for (const Action& action : schedule.actions[to_size(rank)]) {
    const bool joins = action.op == Op::backward_weight && !fused.empty() && fused.back().op == Op::backward_input &&
                       fused.back().chunk == action.chunk && fused.back().microbatch == action.microbatch &&
                       !read_elsewhere(schedule, rank, fused.back());
    if (joins)
      fused.back().op = Op::backward;
    else
      fused.push_back(action);
  }
  return fused;
}

// What a rank posts at one point of the schedule's clock. The clock counts units of F = B = W = 1, so that points are
// whole numbers, and are equal on the ranks that exchange something.
struct Posts {
  List sends, receives;
};
using PostsByTime = std::map<long, Posts>;

std::vector<PostsByTime> collect_posts(const Schedule& schedule, const ScheduleTimes& clock) {
  std::vector<PostsByTime> posts(to_size(schedule.ranks));
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (std::size_t i = 0; i < schedule.actions[to_size(rank)].size(); ++i) {
      const Action& action = schedule.actions[to_size(rank)][i];
      if (!read_elsewhere(schedule, rank, action)) continue;
      const StagePlacement reader = schedule.places[to_size(reader_stage(schedule, rank, action))];
      const long time = static_cast<long>(clock.intervals[to_size(rank)][i].end);
      const bool forward = action.op == Op::forward;
      posts[to_size(rank)][time].sends.push_back(
          {forward ? Op::post_send_forward : Op::post_send_backward, action.chunk, action.microbatch, reader.rank});
      posts[to_size(reader.rank)][time].receives.push_back(
          {forward ? Op::post_recv_forward : Op::post_recv_backward, reader.chunk, action.microbatch, rank});
    }
  return posts;
}

Action wait_for(const Action& post) {
  Action wait = post;
  wait.op = static_cast<Op>(static_cast<int>(post.op) + 1);
  return wait;
}

// Writes one rank's list with its transfers: before the first action that ends after a point of the clock, all that is
// posted at that point.
class TransferWriter {
 public:
  TransferWriter(const Schedule& schedule, int rank, const PostsByTime& posts)
      : schedule_(schedule), rank_(rank), posts_(posts), next_(posts.begin()) {}

  List write(const std::vector<Interval>& intervals) {
    const List& list = schedule_.actions[to_size(rank_)];
    for (std::size_t i = 0; i < list.size(); ++i) {
      while (next_ != posts_.end() && static_cast<double>(next_->first) < intervals[i].end) post(next_++->second);
      const std::size_t first = i, last = i += list[i].paired;  // an action, or a pair
      for (std::size_t k = first; k <= last; ++k) wait_for_input(list[k]);
      for (std::size_t k = first; k <= last; ++k) result_.push_back(list[k]);
      for (std::size_t k = first; k <= last; ++k) copy_locally(list[k]);
    }
    while (next_ != posts_.end()) post(next_++->second);
    wait_for_sends();
    return std::move(result_);
  }

 private:
  void post(const Posts& posts) {
    wait_for_sends();
    const bool group = posts.sends.size() + posts.receives.size() > 1;
    if (group) result_.push_back({Op::begin_group});
    result_.insert(result_.end(), posts.sends.begin(), posts.sends.end());
    result_.insert(result_.end(), posts.receives.begin(), posts.receives.end());
    if (group) result_.push_back({Op::end_group});
    unfinished_ = posts.sends;
  }

  void wait_for_sends() {
    for (const Action& send : unfinished_) result_.push_back(wait_for(send));
    unfinished_.clear();
  }

  void wait_for_input(const Action& action) {
    const int stage = schedule_.stage_at(rank_, action.chunk);
    const bool forward = action.op == Op::forward;
    if (!forward && !computes_input_gradient(action.op)) return;
    const int source = forward ? stage - 1 : stage + 1;
    if (source < 0 || source >= schedule_.stages() || schedule_.places[to_size(source)].rank == rank_) return;
    result_.push_back({forward ? Op::wait_recv_forward : Op::wait_recv_backward, action.chunk, action.microbatch,
                       schedule_.places[to_size(source)].rank});
  }

  void copy_locally(const Action& action) {
    if (reader_stage(schedule_, rank_, action) < 0 || read_elsewhere(schedule_, rank_, action)) return;
    const Op op = action.op == Op::forward ? Op::copy_forward : Op::copy_backward;
    result_.push_back({op, action.chunk, action.microbatch});
  }

  const Schedule& schedule_;
  int rank_;
  const PostsByTime& posts_;
  PostsByTime::const_iterator next_;
  List unfinished_;  // sends of the latest post
  List result_;
};

}  // namespace

Schedule lower(const Schedule& compute) {
  require(!compute.lowered, "schedule: lowered twice");
  Schedule schedule = compute;
  for (int rank = 0; rank < schedule.ranks; ++rank) schedule.actions[to_size(rank)] = fuse(compute, rank);
  const ScheduleTimes clock = timeline(schedule, uniform_durations(1, 1, 1));
  const std::vector<PostsByTime> posts = collect_posts(schedule, clock);
  const Schedule computed = schedule;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    schedule.actions[to_size(rank)] =
        TransferWriter(computed, rank, posts[to_size(rank)]).write(clock.intervals[to_size(rank)]);
  schedule.lowered = true;
  return schedule;
}

Schedule forward_only(const Schedule& schedule) {
  Schedule forward = schedule;
  forward.microbatches = 1;
  forward.lowered = false;
  for (auto& list : forward.actions) list.clear();
  for (const StagePlacement& place : forward.places)
    forward.actions[to_size(place.rank)].push_back({Op::forward, place.chunk, 0});
  return forward;
}

}  // namespace forge
