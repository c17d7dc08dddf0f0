#include <algorithm>
#include <chrono>
#include <vector>

#include "app/checks.hpp"
#include "comm/mesh.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/random.hpp"
#include "device/device_memory.hpp"
#include "plan/placement.hpp"
#include "plan/traffic.hpp"
#include "train/session.hpp"

namespace forge {

namespace {

using Clock = std::chrono::steady_clock;

// Memory on the host and on the device for words of a call.
class Words {
 public:
  explicit Words(std::int64_t count) : host_(to_size(count)), device_(to_size(count) * sizeof(std::int64_t)) {}
  std::int64_t* device() const { return reinterpret_cast<std::int64_t*>(device_.data()); }
  std::vector<std::int64_t>& host() { return host_; }
  void upload(Stream& stream) {
    copy_to_device(stream, device(), host_.data(), host_.size() * sizeof(std::int64_t));
    stream.synchronize();
  }
  void download(Stream& stream) {
    copy_to_host(stream, host_.data(), device(), host_.size() * sizeof(std::int64_t));
    stream.synchronize();
  }

 private:
  std::vector<std::int64_t> host_;
  Buffer device_;
};

class LinkCheck {
 public:
  LinkCheck(Checks& checks, const RunSetup& setup, Mesh& mesh, const Machine* machine)
      : checks_(checks), setup_(setup), mesh_(mesh), machine_(machine), count_(sized(8 << 20, 1 << 18)) {}

  // x ← Σ over the group's ranks r of (r + 1) a: n (n + 1) / 2 a.
  void sums(Group group) {
    Communicator& ranks = mesh_.of(group);
    std::int64_t most = ranks.size();
    checks_.ranks().max_host({&most, 1});
    if (most == 1) return;
    const std::int64_t n = ranks.size();
    double least = 0;
    bool right = true;
    for (int round = 0; round < rounds && n > 1; ++round) {
      Words words(count_);
      for (std::int64_t i = 0; i < count_; ++i) words.host()[to_size(i)] = (ranks.rank() + 1) * (1 + i % 1000);
      words.upload(stream_);
      const double seconds =
          timed(ranks, "sums", [&] { ranks.all_reduce(stream_, words.device(), count_, DType::i64); });
      least = round == 0 ? seconds : std::min(least, seconds);
      words.download(stream_);
      if (wrong_fault(checks_.world().rank(), "sums")) ++words.host()[0];
      for (std::int64_t i = 0; i < count_; ++i)
        right = right && words.host()[to_size(i)] == n * (n + 1) / 2 * (1 + i % 1000);
    }
    const Sent call{group, Collective::all_reduce, count_, DType::i64};
    row(std::string(name_of(group)), least, call, right ? "" : "a sum over the group is wrong");
  }

  // Pairs of ranks that are `distance` apart, each rank with the one on either side: a rank that is slow is so with
  // both.
  void pairs(const std::string& name, int distance) {
    Communicator& ranks = mesh_.of(Group::scalars);
    double least = 0;
    bool right = true;
    for (int turn = 0; turn < 3; ++turn) {
      const int partner = partner_of(ranks.rank(), ranks.size(), distance, turn);
      double seconds = 0;
      for (int round = 0; round < rounds; ++round) {
        if (const double passed = exchange(ranks, partner, right); passed > 0)
          seconds = seconds > 0 ? std::min(seconds, passed) : passed;
        checks_.heartbeat().beat();
      }
      if (seconds > 0) least = least > 0 ? std::min(least, seconds) : seconds;
    }
    row(name, least, {Group::scalars, Collective::send, count_, DType::i64},
        right ? "" : "a message has arrived changed");
  }

 private:
  static constexpr int rounds = 4;

  // Ranks that follow each other at this distance, in a ring: first to second, then second to third, then last to
  // first. -1: none in this turn.
  static int partner_of(int rank, int size, int distance, int turn) {
    const int last = size / distance - 1, mine = rank / distance;
    if (turn == 2) return last < 2 || (mine > 0 && mine < last) ? -1 : rank + (mine == 0 ? last : -last) * distance;
    const int partner = rank + (mine % 2 == turn ? distance : -distance);
    return partner >= 0 && partner < size ? partner : -1;
  }

  template <class Work>
  double timed(Communicator& ranks, const char* place, const Work& work) {
    ranks.barrier();
    const auto start = Clock::now();
    inject_fault(checks_.world().rank(), place);
    work();
    stream_.synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // Seconds of a message to the partner and one from it; 0: there is none.
  double exchange(Communicator& ranks, int partner, bool& right) {
    if (partner < 0) {
      ranks.barrier();
      return 0;
    }
    Words out(count_), in(count_);
    for (std::int64_t i = 0; i < count_; ++i) out.host()[to_size(i)] = word(ranks.rank(), i);
    out.upload(stream_);
    const double seconds = timed(ranks, "pairs", [&] {
      ranks.group_begin();
      ranks.send(stream_, out.device(), count_, DType::i64, partner);
      ranks.receive(stream_, in.device(), count_, DType::i64, partner);
      ranks.group_end(stream_);
    });
    in.download(stream_);
    if (wrong_fault(checks_.world().rank(), "pairs")) ++in.host()[0];
    for (std::int64_t i = 0; i < count_; ++i) right = right && in.host()[to_size(i)] == word(partner, i);
    return seconds;
  }
  static std::int64_t word(int rank, std::int64_t i) { return rank * std::int64_t{1000003} + i; }

  void row(const std::string& name, double seconds, const Sent& call, const std::string& finding) {
    Communicator& ranks = mesh_.of(call.group);
    const bool pair = call.collective == Collective::send;
    double bytes = static_cast<double>(sent_elements(call.collective, call.count, ranks.size()) * 8);
    checks_.ranks().max_host({&bytes, 1});
    const double predicted = machine_ && !pair && ranks.size() > 1 ? predicted_seconds(call) : 0;
    const auto text = [&](double median) {
      std::string line = format_bytes(static_cast<std::size_t>(bytes / median)) + "/s";
      if (predicted > 0) line += formatted(", %.2f times as long as by %s", median / predicted, machine_->name.c_str());
      return line;
    };
    checks_.compare(name + ", time", seconds, text, false);
    checks_.find(name + ", contents", Verdict::wrong, finding, "as they were sent", false);
  }
  double predicted_seconds(const Sent& call) const {
    const auto places = placements(setup_.mesh, setup_.rank, groups_of(setup_), machine_->ranks_per_node);
    return collective_seconds(*machine_, call, places[to_size(call.group)]);
  }

  Checks& checks_;
  const RunSetup& setup_;
  Mesh& mesh_;
  const Machine* machine_;
  Stream stream_;
  std::int64_t count_;
};

}  // namespace

void check_links(Checks& checks, const Deck& deck, const Machine* machine) {
  const World& world = checks.world();
  if (world.size() == 1) return checks.add("links", Verdict::untried, "one rank has none");
  const RunSetup setup = make_setup(deck, world.rank());
  Mesh mesh(world.make_world(), setup.mesh, groups_of(setup));
  mesh.connect();
  LinkCheck links(checks, setup, mesh, machine);
  for (int g = 0; g < group_count; ++g) links.sums(static_cast<Group>(g));
  links.pairs("neighbours", 1);
  if (const int near = world.node_ranks(); world.nodes() > 1 && near > 1) links.pairs("neighbouring nodes", near);
}

}  // namespace forge
