#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "comm/communicator.hpp"
#include "device/side_stream.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// Activations and their gradients between pipeline stages, in a stream of their own. Transfers between begin_group and
// end_group proceed together.
class Transfers {
 public:
  explicit Transfers(Communicator& pipeline);

  // begin_group, end_group; a post, which names direction, chunk, microbatch and peer: `data` is ready in the compute
  // stream or, to receive, free there; a wait: work given to `compute` from here on comes after the transfer.
  void run(Stream& compute, const Action& action, void* data = nullptr, std::int64_t count = 0, DType type = {});
  // Throws errors of work in the background.
  void finish();

 private:
  using Key = std::tuple<bool, bool, int, int>;  // sends, forward, chunk, microbatch
  static Key key_of(const Action& action);
  void end_group();
  void post(Stream& compute, const Action& action, void* data, std::int64_t count, DType type);

  Communicator& pipeline_;
  SideStream stream_;  // none: one stage rank
  std::map<Key, Event> events_;
  std::vector<Key> group_;
  bool grouping_ = false;
};

}  // namespace forge
