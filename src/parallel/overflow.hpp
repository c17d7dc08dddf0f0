#pragma once

#include <vector>

#include "comm/communicator.hpp"
#include "nn/run.plan.hpp"
#include "plan/tasks.hpp"

namespace forge {

// Passes of layers with experts whose rows were sent before the host knew how many there are (plan/repeat.hpp): which
// of them had more than they sent, and the step's sums, which such a pass must not have added to.
template <class T>
class ForwardOverflow {
 public:
  // `stage`: all ranks of the stage; `repeats`: of the lists of tasks that take turns (forward_repeats). A run that
  // checks no overflow has no buffers for it.
  ForwardOverflow(const RunBuffers<T>& run, Communicator& stage, const RankShare& share,
                  std::vector<std::vector<std::vector<Task>>> repeats);

  View<float, 1> groups() const { return run_.overflow; }  // where a rank's passes say so
  // Before the layers of a check: of a chunk and microbatch, those of this state.
  void keep(Stream& stream, const Task& task, int state);
  // Behind them, by every rank of the stage: the tasks that do their forward passes again where any rank has had more
  // rows than it sent, else none. Then the sums are as before, and the passes of these layers wait for counts on the
  // host from here on. Waits for the stream.
  const std::vector<Task>& check(Stream& stream, const Task& task, int state);
  bool has_happened(const Task& task, int state) const { return overflowed_[index(task, state)] != 0; }
  // Checks that found one, over the run.
  std::int64_t repeats() const { return repeats_; }
  // Of the lists of tasks this one is at hand.
  void use(std::size_t list) { list_ = list; }
  // Of a step with so many microbatches.
  void begin_step(int microbatches);

 private:
  std::size_t index(const Task& task, int state) const {
    return to_size((task.action.chunk * microbatches_ + task.action.microbatch) * states_ + state);
  }
  // Tells the step's sums that layers' passes are done again, once in a stage.
  void count(Stream& stream, const std::vector<Task>& again);
  // f(what the run has, what is kept of it)
  template <class F>
  void each(F f) const;

  const RunBuffers<T>& run_;
  Communicator& stage_;
  const RankShare& share_;
  std::vector<std::vector<std::vector<Task>>> lists_;  // by list, check
  std::size_t list_ = 0;                               // at hand
  int chunks_, states_ = 1, microbatches_ = 0;
  std::vector<float> read_;
  std::vector<char> overflowed_;  // by chunk, microbatch, state
  std::vector<double> again_;     // by layer of the model: passes of the step that were done again
  std::int64_t repeats_ = 0;
};

}  // namespace forge
