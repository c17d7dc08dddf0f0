#include "schedule/rendezvous.hpp"

#include "core/to_size.hpp"

#include <algorithm>

namespace forge {

namespace {

// A rank that stands in a launch: the posts which have not met their other side.
struct Waiting {
  std::size_t position = 0;  // of the list, behind the launch
  std::vector<Action> posts;
};

class Rendezvous {
 public:
  explicit Rendezvous(const Schedule& schedule) : schedule_(schedule), ranks_(to_size(schedule.ranks)) {}

  std::string run() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) launch(rank);
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks; ++rank) {
        while (meet(rank)) moved = true;
        if (!violation_.empty()) return violation_;
      }
    }
    return stuck();
  }

 private:
  // Goes on to the rank's next launch, or to its end (posts stays empty).
  void launch(int rank) {
    Waiting& self = ranks_[to_size(rank)];
    const auto& list = schedule_.actions[to_size(rank)];
    bool group = false;
    for (; self.position < list.size() && (group || self.posts.empty()); ++self.position) {
      const Action& action = list[self.position];
      if (action.op == Op::begin_group) group = true;
      if (action.op == Op::end_group) group = false;
      if (is_post(action.op)) self.posts.push_back(action);
    }
  }

  // Lets the first send of this rank to some peer meet the peer's first receive from it, if both are launched.
  bool meet(int rank) {
    Waiting& self = ranks_[to_size(rank)];
    for (std::size_t i = 0; i < self.posts.size(); ++i) {
      const Action send = self.posts[i];
      if (!is_send_post(send.op) || !is_first(self.posts, i)) continue;
      Waiting& other = ranks_[to_size(send.peer)];
      const auto receive = std::find_if(other.posts.begin(), other.posts.end(), [&](const Action& post) {
        return !is_send_post(post.op) && post.peer == rank;
      });
      if (receive == other.posts.end()) continue;
      if (!same_message(rank, send, *receive)) {
        violation_ = "rank " + std::to_string(rank) + ": " + text_of(send) + " meets " + text_of(*receive) +
                     " of rank " + std::to_string(send.peer) + ", which names another message";
        return false;
      }
      const int peer = send.peer;
      other.posts.erase(receive);
      self.posts.erase(self.posts.begin() + static_cast<std::ptrdiff_t>(i));
      if (other.posts.empty()) launch(peer);
      if (self.posts.empty()) launch(rank);
      return true;
    }
    return false;
  }

  // No earlier send of the same launch goes to the same peer.
  static bool is_first(const std::vector<Action>& posts, std::size_t i) {
    return std::none_of(posts.begin(), posts.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const Action& post) { return is_send_post(post.op) && post.peer == posts[i].peer; });
  }

  bool same_message(int rank, const Action& send, const Action& receive) const {
    if (is_forward_transfer(send.op) != is_forward_transfer(receive.op)) return false;
    const int source = schedule_.stage_at(rank, send.chunk);
    const int target = schedule_.stage_at(send.peer, receive.chunk);
    return send.microbatch == receive.microbatch && target == source + (is_forward_transfer(send.op) ? 1 : -1);
  }

  std::string stuck() const {
    std::string text;
    for (int rank = 0; rank < schedule_.ranks; ++rank)
      for (const Action& post : ranks_[to_size(rank)].posts)
        text += (text.empty() ? "" : "; ") + std::string("rank ") + std::to_string(rank) + " in " + text_of(post);
    return text.empty() ? text : "deadlock under rendezvous sends: " + text;
  }

  const Schedule& schedule_;
  std::vector<Waiting> ranks_;
  std::string violation_;
};

}  // namespace

std::string find_rendezvous_violation(const Schedule& schedule) {
  return Rendezvous(schedule).run();
}

}  // namespace forge
