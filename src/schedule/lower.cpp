#include "schedule/lower.hpp"

#include <algorithm>
#include <map>

#include "core/error.hpp"
#include "schedule/timeline.hpp"

namespace forge {

namespace {

using List = std::vector<Action>;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// The rank of the stage that reads what this compute action makes: the next stage for F, the previous one for B; -1 for
// W and at the pipeline's ends.
int reader_stage(const Schedule& schedule, int rank, const Action& action) {
  const int stage = schedule.stage_at(rank, action.chunk);
  if (action.op == Op::forward) return stage + 1 < schedule.stages() ? stage + 1 : -1;
  return computes_input_gradient(action.op) ? stage - 1 : -1;
}

bool read_elsewhere(const Schedule& schedule, int rank, const Action& action) {
  const int reader = reader_stage(schedule, rank, action);
  return reader >= 0 && schedule.places[at(reader)].rank != rank;
}

// B, W -> backward where nobody else waits for B.
List fuse(const Schedule& schedule, int rank) {
  List fused;
  for (const Action& action : schedule.actions[at(rank)]) {
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

List with_recompute(const List& list) {
  List result;
  for (const Action& action : list) {
    if (computes_input_gradient(action.op)) result.push_back({Op::recompute, action.chunk, action.microbatch});
    result.push_back(action);
  }
  return result;
}

// What a rank posts at one point of the schedule's clock. The clock counts units of F = B = W = recompute = 1, so that
// points are whole numbers, and are equal on the ranks that exchange something.
struct Posts {
  List sends, receives;
};
using PostsByTime = std::map<long, Posts>;

std::vector<PostsByTime> collect_posts(const Schedule& schedule, const Timeline& clock) {
  std::vector<PostsByTime> posts(at(schedule.ranks));
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (std::size_t i = 0; i < schedule.actions[at(rank)].size(); ++i) {
      const Action& action = schedule.actions[at(rank)][i];
      if (!read_elsewhere(schedule, rank, action)) continue;
      const Place reader = schedule.places[at(reader_stage(schedule, rank, action))];
      const long time = static_cast<long>(clock.intervals[at(rank)][i].end);
      const bool forward = action.op == Op::forward;
      posts[at(rank)][time].sends.push_back(
          {forward ? Op::post_send_forward : Op::post_send_backward, action.chunk, action.microbatch, reader.rank});
      posts[at(reader.rank)][time].receives.push_back(
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
    const List& list = schedule_.actions[at(rank_)];
    for (std::size_t i = 0; i < list.size(); ++i) {
      while (next_ != posts_.end() && static_cast<double>(next_->first) < intervals[i].end) post(next_++->second);
      wait_for_input(list[i]);
      result_.push_back(list[i]);
      hand_over(list[i]);
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
    if (source < 0 || source >= schedule_.stages() || schedule_.places[at(source)].rank == rank_) return;
    result_.push_back({forward ? Op::wait_recv_forward : Op::wait_recv_backward, action.chunk, action.microbatch,
                       schedule_.places[at(source)].rank});
  }

  void hand_over(const Action& action) {
    if (reader_stage(schedule_, rank_, action) < 0 || read_elsewhere(schedule_, rank_, action)) return;
    const Op op = action.op == Op::forward ? Op::hand_forward : Op::hand_backward;
    result_.push_back({op, action.chunk, action.microbatch});
  }

  const Schedule& schedule_;
  int rank_;
  const PostsByTime& posts_;
  PostsByTime::const_iterator next_;
  List unfinished_;  // sends of the latest post
  List result_;
};

// F, B and recompute read parameters; W reads activations and output gradients only.
bool reads_parameters(Op op) {
  return is_compute(op) && op != Op::backward_weight;
}

// Gathers one compute action ahead of use, so that the all-gather runs while the rank computes something else; releases
// after use unless the next reader on the rank is the same chunk. With keep_for_step: first use and last use of the
// step.
List with_gathers(const List& list, int chunks, bool keep_for_step) {
  std::vector<std::size_t> readers;  // positions of actions that read parameters
  for (std::size_t i = 0; i < list.size(); ++i)
    if (reads_parameters(list[i].op)) readers.push_back(i);
  std::vector<List> before(list.size()), waits(list.size()), after(list.size());
  std::vector<bool> gathered(at(chunks), false);
  for (std::size_t k = 0; k < readers.size(); ++k) {
    const Action& action = list[readers[k]];
    const auto same_chunk = [&](std::size_t other) { return list[other].chunk == action.chunk; };
    if (!gathered[at(action.chunk)]) {
      before[k > 0 ? readers[k - 1] : readers[k]].push_back({Op::gather_parameters, action.chunk, action.microbatch});
      waits[readers[k]].push_back({Op::wait_parameters, action.chunk, action.microbatch});
      gathered[at(action.chunk)] = true;
    }
    const auto rest = readers.begin() + static_cast<std::ptrdiff_t>(k) + 1;
    const auto until = keep_for_step ? readers.end() : std::min(rest + 1, readers.end());
    if (rest == readers.end() || std::none_of(rest, until, same_chunk)) {
      after[readers[k]].push_back({Op::release_parameters, action.chunk, action.microbatch});
      gathered[at(action.chunk)] = false;
    }
  }
  List result;
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (const List* part : {&before[i], &waits[i]}) result.insert(result.end(), part->begin(), part->end());
    result.push_back(list[i]);
    result.insert(result.end(), after[i].begin(), after[i].end());
  }
  return result;
}

// What a rank posts or frees right after a compute action; reductions wait for it, so that the sends that other stages
// stand still for go first.
bool follows_at_once(Op op) {
  return is_post(op) || op == Op::begin_group || op == Op::end_group || op == Op::wait_send_forward ||
         op == Op::wait_send_backward || op == Op::hand_forward || op == Op::hand_backward ||
         op == Op::release_parameters;
}

// Writes one rank's list with its reductions: after the last W of each chunk, or after every W; each is over before the
// chunk's next W writes, and before the list ends.
class ReductionWriter {
 public:
  ReductionWriter(int chunks, int microbatches, bool every_microbatch)
      : microbatches_(microbatches), every_microbatch_(every_microbatch), weights_(at(chunks), 0) {}

  List write(const List& list) {
    for (const Action& action : list) {
      if (!follows_at_once(action.op)) post();
      if (computes_weight_gradient(action.op)) close(action.chunk);
      result_.push_back(action);
      if (computes_weight_gradient(action.op) && (++weights_[at(action.chunk)] == microbatches_ || every_microbatch_))
        due_.push_back({Op::reduce_gradients, action.chunk, action.microbatch});
    }
    post();
    close(every_chunk);
    return std::move(result_);
  }

 private:
  static constexpr int every_chunk = -1;

  void post() {
    result_.insert(result_.end(), due_.begin(), due_.end());
    open_.insert(open_.end(), due_.begin(), due_.end());
    due_.clear();
  }
  void close(int chunk) {
    const auto meant = [&](const Action& reduce) { return chunk == every_chunk || reduce.chunk == chunk; };
    for (const Action& reduce : open_)
      if (meant(reduce)) result_.push_back({Op::wait_gradients, reduce.chunk, reduce.microbatch});
    std::erase_if(open_, meant);
  }

  int microbatches_;
  bool every_microbatch_;
  std::vector<int> weights_;  // W's so far, by chunk
  List due_, open_;           // reductions to be posted, and posted ones
  List result_;
};

}  // namespace

Schedule lower(const Schedule& compute, const LowerOptions& options) {
  require(!compute.lowered, "schedule: lowered twice");
  Schedule schedule = compute;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    schedule.actions[at(rank)] = fuse(compute, rank);
    if (options.recompute) schedule.actions[at(rank)] = with_recompute(schedule.actions[at(rank)]);
  }
  const Timeline clock = timeline(schedule, uniform_durations(1, 1, 1, 1));
  const std::vector<PostsByTime> posts = collect_posts(schedule, clock);
  const Schedule computed = schedule;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    List list = TransferWriter(computed, rank, posts[at(rank)]).write(clock.intervals[at(rank)]);
    if (options.gather_parameters) list = with_gathers(list, schedule.chunks_per_rank, options.keep_for_step);
    ReductionWriter reductions(schedule.chunks_per_rank, schedule.microbatches, options.reduce_every_microbatch);
    schedule.actions[at(rank)] = reductions.write(list);
  }
  schedule.lowered = true;
  return schedule;
}

}  // namespace forge
