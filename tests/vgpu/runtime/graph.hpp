#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "event.hpp"
#include "work.hpp"

namespace vgpu {

struct Stream;

// Works and the waits of each.
struct Graph {
  struct Node {
    std::unique_ptr<Work> work;  // to be made again for each launch; null: only waits
    std::vector<int> after;
  };
  std::vector<Node> nodes;
};

// A stream that records: its works become nodes of a graph. Other streams join by waiting for an event that was
// recorded in one of them, and must be joined again before the end.
class Capture {
 public:
  static std::shared_ptr<Capture> begin(Stream& origin);

  cudaError_t add(Stream& stream, std::unique_ptr<Work> work);
  cudaError_t record(const std::shared_ptr<Capture>& self, Stream& stream, Event& event);
  // `captured`: the waiting stream's own capture; none: the stream joins.
  cudaError_t wait(const std::shared_ptr<Capture>& captured, Stream& stream, const Event& event);
  // For an event of a stream that doesn't capture.
  cudaError_t wait_outside(bool recorded);
  cudaError_t invalidate(const char* call);
  // Every stream runs again. Null on errors.
  std::unique_ptr<Graph> end(Stream& stream, cudaError_t& error);
  bool valid() const { return valid_; }

 private:
  // The last works of a stream.
  struct Member {
    Stream* stream;
    std::vector<int> last;
  };
  Member& member(Stream& stream);
  int append(Member& member, std::unique_ptr<Work> work);

  std::weak_ptr<Capture> self_;
  Graph graph_;
  std::vector<Member> members_;  // the origin first
  bool valid_ = true;
};

// One launch of a graph: its works in an order, drawn, that their edges allow.
std::unique_ptr<Work> graph_work(std::shared_ptr<const Graph> graph);

}  // namespace vgpu
