#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/world.hpp"
#include "parallel/replica_parts.hpp"
#include "train/session.hpp"

namespace forge {

// Compares the numbers that ranks hold alike (layout/replicas.hpp) by checksums, to find a bit that flipped in a memory
// or a rank whose update went wrong. Where all agree, a rank sends one number to each of its groups; in a group that
// differs the checksums of tensors follow.
template <class T>
class ReplicaCheck {
 public:
  // Collective over all ranks. `world`: for the names of nodes; null: none.
  ReplicaCheck(Session<T>& session, const World* world);

  // Whether any ranks hold anything alike, on every rank.
  bool compares() const { return compares_; }
  // Collective, behind a step: check() where train.check_replicas_steps says so, or behind the run's last one. Before
  // it the fault `upset`.
  std::string after_step(std::int64_t step, bool last);
  // Collective, before a save of the step: check(), if it hasn't been made behind the step: a checkpoint then has no
  // fault that a later comparison would find.
  std::string before_save(std::int64_t step);

 private:
  // "" where all agree. Else, on every rank, the ranks that differ and their tensors; with train.replicas_differ =
  // repair these tensors then have the value of most of their group. Throws with `replicas_differ` where no value has a
  // majority, or the ranks differ once more; without repair for any difference.
  std::string check(std::int64_t step);
  void upset(std::int64_t tensor);
  struct GroupOf {
    ReplicaKind kind;
    std::unique_ptr<Communicator> ranks;
    std::vector<int> world_ranks;
  };
  // The result of a comparison on this rank: text of the groups that it is the first rank of.
  struct Found {
    std::string text;
    bool repairable = true;
  };
  std::vector<ReplicaPart> parts(ReplicaKind kind, bool by_tensor) const;
  bool differ(const GroupOf& group) const;
  Found compare(bool repair);
  void compare_tensors(const GroupOf& group, bool repair, Found& found);
  // Copies the part's bytes of the group's rank `from` to the ranks in `odd`.
  void give(const GroupOf& group, const ReplicaPart& part, int from, const std::vector<int>& odd);
  // The texts of all ranks, on every rank.
  std::string told_by_all(const std::string& text);

  Session<T>& session_;
  const World* world_;
  std::vector<GroupOf> groups_;
  bool compares_ = false;
  std::int64_t compared_ = 0;  // the step behind which ranks were compared last
};

}  // namespace forge
