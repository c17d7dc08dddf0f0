#include "train/replica_check.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>

#include "comm/agreement.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/faults.hpp"
#include "core/random.hpp"
#include "device/flip_bit.hpp"
#include "plan/setup.hpp"

namespace forge {

namespace {

template <class V>
std::string text_of(std::span<const V> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::vector<std::uint64_t> words_of(const std::string& text) {
  std::vector<std::uint64_t> words(text.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), text.data(), text.size());
  return words;
}

// The ranks of a group by a tensor's checksum.
struct Votes {
  int first = 0;         // of those with the most frequent one
  bool majority = true;  // whether they are more than half
  std::vector<int> odd;  // the others
};

Votes votes_of(const std::vector<std::vector<std::uint64_t>>& sums, std::size_t part) {
  std::map<std::uint64_t, int> count;
  for (const auto& of_rank : sums) ++count[of_rank[part]];
  const auto fewer = [&](const auto& a, const auto& b) { return count[a[part]] < count[b[part]]; };
  const auto most = std::max_element(sums.begin(), sums.end(), fewer);
  Votes votes{static_cast<int>(most - sums.begin()), 2 * to_size(count[(*most)[part]]) > sums.size(), {}};
  for (std::size_t r = 0; r < sums.size(); ++r)
    if (sums[r][part] != (*most)[part]) votes.odd.push_back(static_cast<int>(r));
  return votes;
}

}  // namespace

template <class T>
ReplicaCheck<T>::ReplicaCheck(Session<T>& session, const World* world) : session_(session), world_(world) {
  const RunSetup& setup = session.setup();
  const MeshGroups groups = groups_of(setup);
  Communicator& all = session.mesh().world();
  for (int k = 0; k < replica_kinds; ++k) {
    const auto kind = static_cast<ReplicaKind>(k);
    const auto number = [&](int rank) {
      return replica_group(kind, setup.mesh, groups, setup.deck.train.zero_stage > 0, rank);
    };
    GroupOf group{kind, all.split(number(all.rank()), all.rank()), {}};
    if (!group.ranks || group.ranks->size() == 1 || parts(kind, false).empty()) continue;
    for (const std::string& rank : group.ranks->gather_host(std::to_string(all.rank())))
      group.world_ranks.push_back(std::stoi(rank));
    groups_.push_back(std::move(group));
  }
  std::int64_t any = !groups_.empty();
  all.max_host({&any, 1});
  compares_ = any == 1;
}

// Weights that are gathered behind the update are waited for.
template <class T>
std::vector<ReplicaPart> ReplicaCheck<T>::parts(ReplicaKind kind, bool by_tensor) const {
  const auto bytes_at = [](auto* data) { return reinterpret_cast<std::byte*>(data); };
  if (kind == ReplicaKind::matrices) {
    const auto lines = session_.line_moments();
    if (lines.empty()) return {};
    return {{"the optimizer's numbers of rows, columns and squares", bytes_at(lines.data), lines.size(),
             dtype_of<acc_t<T>>}};
  }
  if (kind == ReplicaKind::routers) {
    const auto biases = session_.routers().biases();
    if (biases.empty()) return {};
    return {{"biases of the routers", bytes_at(biases.data), biases.size(), dtype_of<acc_t<T>>}};
  }
  ParameterStorage<T>& storage = session_.storage();
  for (std::size_t u = 0; u < storage.size(); ++u)
    for (const Event& gathered : storage.unit(u).gathered) gathered.wait(session_.stream());
  return replica_parts(storage, kind, by_tensor);
}

template <class T>
bool ReplicaCheck<T>::differ(const GroupOf& group) const {
  std::uint64_t sum = 0;
  for (const std::uint64_t one : bit_sums_of(parts(group.kind, false), session_.stream(), session_.arena()))
    sum = mix(sum, one);
  const auto all = group.ranks->gather_host(std::to_string(sum));
  return std::ranges::any_of(all, [&](const std::string& other) { return other != all.front(); });
}

template <class T>
void ReplicaCheck<T>::compare_tensors(const GroupOf& group, bool repair, Found& found) {
  constexpr int most_told = 4;
  const std::vector<ReplicaPart> parts = this->parts(group.kind, true);
  const std::vector<std::uint64_t> own = bit_sums_of(parts, session_.stream(), session_.arena());
  std::vector<std::vector<std::uint64_t>> sums;
  for (const std::string& text : group.ranks->gather_host(text_of<std::uint64_t>(own))) sums.push_back(words_of(text));
  int told = 0;
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Votes votes = votes_of(sums, i);
    if (votes.odd.empty()) continue;
    found.repairable = found.repairable && votes.majority;
    if (told++ < most_told) {
      std::vector<int> odd;
      for (const int r : votes.odd) odd.push_back(group.world_ranks[to_size(r)]);
      text += "\n  " + parts[i].name + ": " + ranks_text(odd, world_) + (odd.size() == 1 ? " differs" : " differ") +
              " from " + counted(static_cast<std::int64_t>(sums.size() - odd.size()), "rank") + " like rank " +
              std::to_string(group.world_ranks[to_size(votes.first)]) + " (" + std::string(name_of(group.kind)) + ")" +
              (votes.majority ? "" : ": no value has a majority");
    }
    if (repair && votes.majority) give(group, parts[i], votes.first, votes.odd);
  }
  if (told > most_told) text += "\n  and " + counted(told - most_told, "tensor") + " more of these ranks";
  if (group.ranks->rank() == 0) found.text += text;
}

// In pieces, so that no second unit is ever in memory.
template <class T>
void ReplicaCheck<T>::give(const GroupOf& group, const ReplicaPart& part, int from, const std::vector<int>& odd) {
  constexpr std::size_t most = std::size_t{1} << 24;
  Stream& stream = session_.stream();
  const int rank = group.ranks->rank();
  for (std::size_t at = 0; at < part.bytes(); at += most) {
    std::string bytes(std::min(most, part.bytes() - at), '\0');
    if (rank == from) {
      copy_to_host(stream, bytes.data(), part.data + at, bytes.size());
      stream.synchronize();
    }
    group.ranks->broadcast_host(bytes, from);
    if (std::ranges::find(odd, rank) == odd.end()) continue;
    copy_to_device(stream, part.data + at, bytes.data(), bytes.size());
    stream.synchronize();
  }
}

template <class T>
typename ReplicaCheck<T>::Found ReplicaCheck<T>::compare(bool repair) {
  Found found;
  for (const GroupOf& group : groups_)
    if (differ(group)) compare_tensors(group, repair, found);
  return found;
}

template <class T>
std::string ReplicaCheck<T>::told_by_all(const std::string& text) {
  Communicator& all = session_.mesh().world();
  std::string told;
  all.collect_host(text, 0, [&](const std::string& one) { told += one; });
  all.broadcast_host(told, 0);
  return told;
}

template <class T>
std::string ReplicaCheck<T>::check(std::int64_t step) {
  const bool repair = session_.setup().deck.train.replicas_differ == ReplicaAction::repair;
  compared_ = step;
  const Found found = compare(repair);
  std::array<std::int64_t, 2> any{!found.text.empty(), !found.repairable};
  session_.mesh().world().max_host(any);
  if (any[0] == 0) return "";
  const std::string told = told_by_all(found.text);
  bool stop = !repair || any[1] == 1;
  if (!stop) {
    session_.parameters_changed();
    std::int64_t still = !compare(false).text.empty();
    session_.mesh().world().max_host({&still, 1});
    stop = still == 1;
  }
  if (!stop) return told;
  throw ErrorOf<ExitCode::replicas_differ>(
      "ranks that must hold the same numbers differ after step " + std::to_string(step) + ":" + told +
      "\nA memory or a processor of the odd ranks is broken: start again from the newest checkpoint on other nodes" +
      (repair ? "" : ", or with train.replicas_differ: repair"));
}

template <class T>
std::string ReplicaCheck<T>::after_step(std::int64_t step, bool last) {
  if (const std::int64_t tensor = upset_fault(session_.mesh().rank(), step); tensor >= 0) upset(tensor);
  if (!last && step % session_.setup().deck.train.check_replicas_steps != 0) return "";
  return check(step);
}

template <class T>
std::string ReplicaCheck<T>::before_save(std::int64_t step) {
  return compared_ == step ? "" : check(step);
}

template <class T>
void ReplicaCheck<T>::upset(std::int64_t tensor) {
  std::vector<ReplicaPart> all = replica_parts(session_.storage(), ReplicaKind::data, true);
  std::ranges::copy(replica_parts(session_.storage(), ReplicaKind::expert_data, true), std::back_inserter(all));
  const ReplicaPart& part = all.at(to_size(tensor) % all.size());
  flip_bit_of(session_.stream(), part.data, size_of(part.type));
}

FORGE_INSTANTIATE_CLASS(ReplicaCheck);

}  // namespace forge
