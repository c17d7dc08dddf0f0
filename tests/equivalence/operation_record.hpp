#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.hpp"
#include "device/timeline.hpp"
#include "nn/context.hpp"
#include "plan/setup.hpp"

namespace forge::test {

// A line of text for each part of the passes of a step's layers, in their order. Collectives that stand between two
// other lines have one for each group and kind; kernels over rows that follow each other one for each name. `alike`:
// the router loads all experts alike, in one round, and no document ends; else products and rows of experts, their
// dispatch, and pairs of attention, which depend on the router and the documents, are left out. `replays`:
// routers take choices of another run, and weights of these by a kernel that no list has.
class SegmentLines {
 public:
  SegmentLines(const RunSetup& setup, bool alike, bool replays) : setup_(setup), alike_(alike), replays_(replays) {}

  // The groups whose collectives are here.
  std::vector<Group> groups() const;
  void add(const Product& product);
  void add(const ExpertProduct& product);
  // `heads`: without positions; pairs: of all sequences.
  void add(const AttentionProduct& heads, std::int64_t query_rows, std::int64_t key_rows, double pairs);
  void add(Group group, Collective collective, std::int64_t calls, std::int64_t bytes);
  // `behind`: in another stream than the compute stream.
  void add(std::string_view name, std::int64_t read, std::int64_t written, bool behind);
  std::vector<std::string> lines();
  // What follows stands in a line of its own; takes the lines of a pass that ran beside another one.
  void cut() { end_sent(); }
  void append(SegmentLines& pass);
  bool alike() const { return alike_; }

 private:
  bool leaves_out(std::string_view name) const;
  void end_rows();
  void end_sent();
  void add_line(const std::string& text);

  const RunSetup& setup_;
  bool alike_, replays_;
  std::string rows_;  // name of the last kernel, while nothing else has come
  std::int64_t read_ = 0, written_ = 0;
  std::map<std::pair<Group, Collective>, std::pair<std::int64_t, std::int64_t>> sent_;  // since the last line
  std::vector<std::string> lines_;
};

// The work and collectives of a rank in a step, as they run: collectives from the counters of the mesh's groups.
class OperationRecord : public OperationTape {
 public:
  // `compute`: the stream of layers.
  OperationRecord(Mesh& mesh, const Stream& compute, SegmentLines lines);

  void product(const Product& product) override;
  void experts(const ExpertProduct& product) override;
  void scales(Stream& stream, View<const float, 1> amax) override;
  void attention(Stream& stream, const AttentionShape& shape, const AttentionMask& mask,
                 const AttentionProduct& heads) override;
  void rows(const Stream& stream, std::string_view name, std::int64_t read, std::int64_t written) override;
  void turn(int track) override;

  // The lines until now.
  std::vector<std::string> lines();
  // None yet, of the same kind.
  SegmentLines empty() const { return empty_; }
  std::set<float> amaxes;  // of operands in FP8, each once

 private:
  void count_sent();
  SegmentLines& current() { return track_ < 0 ? lines_ : of_tracks_[static_cast<std::size_t>(track_)]; }

  Mesh& mesh_;
  const Stream& compute_;
  const SegmentLines empty_;
  SegmentLines lines_ = empty_;
  int track_ = -1;
  std::array<SegmentLines, 2> of_tracks_{empty_, empty_};  // of the pair that runs
  std::map<Group, Traffic> counted_;
};

// "" where the record is the list of the rank's tasks: every product, its sizes and types, attention's sizes, and
// between them the bytes of kernels over rows, and the collectives of layers with theirs, in the same order and in the
// same stream; and where `spans`, the step's timeline, has these collectives in the list's order, but of pairs, whose
// passes take turns.
std::string operations_problem(const RunSetup& setup, OperationRecord& record,
                               const std::vector<Timeline::Span>& spans);

}  // namespace forge::test
