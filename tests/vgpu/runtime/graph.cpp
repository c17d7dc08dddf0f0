#include "graph.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "api.hpp"

namespace vgpu {

std::shared_ptr<Capture> Capture::begin(Stream& origin) {
  auto capture = std::make_shared<Capture>();
  capture->self_ = capture;
  capture->members_.push_back({&origin, {}});
  origin.capture = capture;
  return capture;
}

Capture::Member& Capture::member(Stream& stream) {
  return *std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.stream == &stream; });
}

int Capture::append(Member& member, std::unique_ptr<Work> work) {
  graph_.nodes.push_back({std::move(work), member.last});
  const int node = static_cast<int>(graph_.nodes.size()) - 1;
  member.last = {node};
  return node;
}

cudaError_t Capture::add(Stream& stream, std::unique_ptr<Work> work) {
  if (!valid_) return cudaErrorStreamCaptureInvalidated;
  if (!work->again()) return invalidate(work->text().c_str());
  append(member(stream), std::move(work));
  return cudaSuccess;
}

cudaError_t Capture::record(const std::shared_ptr<Capture>& self, Stream& stream, Event& event) {
  if (!valid_) return cudaErrorStreamCaptureInvalidated;
  event.point.reset();
  event.capture = self;
  event.captured_after = append(member(stream), nullptr);
  return cudaSuccess;
}

cudaError_t Capture::wait(const std::shared_ptr<Capture>& captured, Stream& stream, const Event& event) {
  if (!valid_) return cudaErrorStreamCaptureInvalidated;
  if (captured && captured.get() != this)
    return refused(cudaErrorStreamCaptureIsolation, "a capturing stream waits for an event of another capture");
  if (!captured) {
    stream.capture = self_.lock();
    members_.push_back({&stream, {}});
  }
  member(stream).last.push_back(event.captured_after);
  return cudaSuccess;
}

cudaError_t Capture::wait_outside(bool recorded) {
  if (!recorded) return cudaSuccess;
  valid_ = false;
  return refused(cudaErrorStreamCaptureIsolation,
                 "a capturing stream waits for an event that was recorded outside of the capture");
}

cudaError_t Capture::invalidate(const char* call) {
  valid_ = false;
  return refused(cudaErrorStreamCaptureUnsupported, std::string(call) + " in a stream that is being captured");
}

std::unique_ptr<Graph> Capture::end(Stream& stream, cudaError_t& error) {
  error = cudaSuccess;
  if (members_.front().stream != &stream) {
    error = refused(cudaErrorStreamCaptureUnmatched, "the capture ends in another stream than it began in");
    return nullptr;
  }
  if (!valid_) error = cudaErrorStreamCaptureInvalidated;
  // Whatever a stream did last must be known, over some path, to the first stream's end.
  std::vector<bool> joined(graph_.nodes.size(), false);
  std::vector<int> open = members_.front().last;
  while (!open.empty()) {
    const auto node = static_cast<std::size_t>(open.back());
    open.pop_back();
    if (joined[node]) continue;
    joined[node] = true;
    open.insert(open.end(), graph_.nodes[node].after.begin(), graph_.nodes[node].after.end());
  }
  if (error == cudaSuccess && std::find(joined.begin(), joined.end(), false) != joined.end())
    error = refused(cudaErrorStreamCaptureUnjoined, "a stream that joined the capture was not joined again at its end");
  auto graph = error == cudaSuccess ? std::make_unique<Graph>(std::move(graph_)) : nullptr;
  const std::vector<Member> members = std::move(members_);
  for (const Member& m : members) m.stream->capture.reset();  // the last one may be this object's
  return graph;
}

namespace {

class GraphLaunch final : public Work {
 public:
  explicit GraphLaunch(std::shared_ptr<const Graph> graph) : graph_(std::move(graph)) {
    for (const Graph::Node& node : graph_->nodes) {
      works_.push_back(node.work ? node.work->again() : nullptr);
      waits_for_.push_back(node.after.size());
    }
    left_ = works_.size();
    for (std::size_t i = 0; i < works_.size(); ++i)
      if (waits_for_[i] == 0) open_.push_back(i);
  }

  bool ready(Device& device) override {
    return left_ == 0 || std::any_of(open_.begin(), open_.end(), [&](std::size_t i) { return can_go_on(i, device); });
  }
  bool step(Device& device) override {
    if (left_ == 0) return true;
    std::vector<std::size_t> can;
    for (const std::size_t i : open_)
      if (can_go_on(i, device)) can.push_back(i);
    const std::size_t i = can[device.random().below(can.size())];
    if (works_[i] && !works_[i]->step(device)) return false;
    finish(i);
    return left_ == 0;
  }
  std::string text() const override { return "a graph of " + std::to_string(works_.size()) + " works"; }

 private:
  bool can_go_on(std::size_t i, Device& device) const { return !works_[i] || works_[i]->ready(device); }
  void finish(std::size_t i) {
    --left_;
    std::erase(open_, i);
    for (std::size_t j = i + 1; j < works_.size(); ++j)
      for (const int before : graph_->nodes[j].after)
        if (static_cast<std::size_t>(before) == i && --waits_for_[j] == 0) open_.push_back(j);
  }

  std::shared_ptr<const Graph> graph_;
  std::vector<std::unique_ptr<Work>> works_;
  std::vector<std::size_t> waits_for_, open_;
  std::size_t left_ = 0;
};

// Handles of graphs, and of what is made from them to be launched.
template <class Handle>
class Handles {
 public:
  Handle add(std::shared_ptr<const Graph> graph) {
    const std::lock_guard lock(mutex_);
    const auto handle = reinterpret_cast<Handle>(++last_);
    graphs_[handle] = std::move(graph);
    return handle;
  }
  std::shared_ptr<const Graph> find(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = graphs_.find(handle);
    return found == graphs_.end() ? nullptr : found->second;
  }
  bool remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    return graphs_.erase(handle) > 0;
  }

 private:
  std::mutex mutex_;
  std::uintptr_t last_ = 0;
  std::map<Handle, std::shared_ptr<const Graph>> graphs_;
};

Handles<cudaGraph_t>& graphs() {
  static auto& handles = *new Handles<cudaGraph_t>;
  return handles;
}
Handles<cudaGraphExec_t>& executables() {
  static auto& handles = *new Handles<cudaGraphExec_t>;
  return handles;
}

}  // namespace

std::unique_ptr<Work> graph_work(std::shared_ptr<const Graph> graph) {
  return std::make_unique<GraphLaunch>(std::move(graph));
}

}  // namespace vgpu

using vgpu::find_stream;
using vgpu::refused;
using vgpu::returned;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  const auto [stream, error] = find_stream(handle, "cudaStreamBeginCapture");
  if (!stream) return error;
  if (stream->capture) return refused(cudaErrorStreamCaptureUnsupported, "a capture begins in a stream that captures");
  vgpu::Capture::begin(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const auto [stream, error] = find_stream(handle, "cudaStreamEndCapture");
  if (!stream) return error;
  if (!stream->capture) return refused(cudaErrorStreamCaptureUnmatched, "a capture ends that hasn't begun");
  cudaError_t result = cudaSuccess;
  const auto capture = stream->capture;
  auto captured = capture->end(*stream, result);
  *graph = captured ? vgpu::graphs().add(std::move(captured)) : nullptr;
  return returned(result);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const auto [stream, error] = find_stream(handle, "cudaStreamIsCapturing");
  if (!stream) return error;
  *status = !stream->capture           ? cudaStreamCaptureStatusNone
            : stream->capture->valid() ? cudaStreamCaptureStatusActive
                                       : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  auto found = vgpu::graphs().find(graph);
  if (!found) return returned(cudaErrorInvalidValue);
  *exec = vgpu::executables().add(std::move(found));
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  const auto [stream, error] = find_stream(handle, "cudaGraphLaunch");
  if (!stream) return error;
  auto found = vgpu::executables().find(exec);
  if (!found) return returned(cudaErrorInvalidValue);
  vgpu::count(stream->device, "graph launches");
  return vgpu::give(*stream, vgpu::graph_work(std::move(found)));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return vgpu::graphs().remove(graph) ? cudaSuccess : returned(cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return vgpu::executables().remove(exec) ? cudaSuccess : returned(cudaErrorInvalidValue);
}

}  // extern "C"
