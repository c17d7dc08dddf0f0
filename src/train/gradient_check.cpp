#include "train/gradient_check.hpp"

#include <algorithm>
#include <array>

#include "comm/agreement.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "data/loader.hpp"
#include "train/batch_feed.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

// Of which sums over all ranks stay in range.
std::int64_t short_sum(std::uint64_t sum) {
  return static_cast<std::int64_t>(sum >> 16);
}

}  // namespace

template <class T>
bool GradientCheck<T>::due(std::int64_t step) const {
  const std::int64_t every = session_.setup().deck.train.check_gradients_steps;
  return every > 0 && step % every == 0;
}

template <class T>
void GradientCheck<T>::compute_next(const SampleStream& stream, std::int64_t step, const LabelCounts& labels) {
  const RunSetup& setup = session_.setup();
  BatchShare share = batch_share(setup);
  share.rank = (share.rank + distance()) % groups();
  Loader loader(stream, share, step, step, setup.rows());
  BatchFeed feed(loader.next());
  session_.begin_checksum();
  session_.compute_gradients(feed, step, labels);
  next_ = session_.end_checksum();
  session_.begin_checksum();
}

template <class T>
void GradientCheck<T>::compare(std::int64_t step) {
  const std::uint64_t own = session_.end_checksum();
  std::array<std::int64_t, 2> sums{short_sum(own), short_sum(next_)};
  session_.mesh().data().sum_host(sums);
  std::int64_t differ = sums[0] != sums[1];
  session_.mesh().world().max_host({&differ, 1});
  if (differ == 1) refuse(step, suspected(own));
  agreed_ = step;
}

template <class T>
bool GradientCheck<T>::suspected(std::uint64_t own) {
  Communicator& data = session_.mesh().data();
  std::vector<std::uint64_t> owns, nexts;
  for (const std::string& text : data.gather_host(std::to_string(own) + " " + std::to_string(next_))) {
    std::size_t end = 0;
    owns.push_back(std::stoull(text, &end));
    nexts.push_back(std::stoull(text.substr(end)));
  }
  const auto computed_otherwise = [&](int rank) {  // by this rank than by its next one
    return nexts[to_size(rank)] != owns[to_size((rank + distance()) % groups())];
  };
  const auto comparisons_lost = [&](int rank) {
    return computed_otherwise(rank) + computed_otherwise((rank + groups() - distance()) % groups());
  };
  int most = 0;
  for (int rank = 0; rank < groups(); ++rank) most = std::max(most, comparisons_lost(rank));
  return most > 0 && comparisons_lost(data.rank()) == most;
}

template <class T>
void GradientCheck<T>::refuse(std::int64_t step, bool suspected) {
  Communicator& all = session_.mesh().world();
  std::string ranks;
  std::vector<int> odd;
  all.collect_host(suspected ? std::to_string(all.rank()) : "", 0, [&](const std::string& one) {
    if (!one.empty()) odd.push_back(std::stoi(one));
  });
  if (all.rank() == 0) ranks = ranks_text(odd, world_);
  all.broadcast_host(ranks, 0);
  throw ErrorOf<ExitCode::replicas_differ>(
      "gradients of step " + std::to_string(step) +
      " are others where a second data-parallel group computes them: of " + ranks + "\nA processor or a memory " +
      (groups() / distance() > 2 ? "there is broken" : "of one of the two groups is broken") +
      ": start again on other nodes from " +
      (agreed_ > 0 ? "a checkpoint of step " + std::to_string(agreed_) + ", the last one that agreed, or before"
                   : "a checkpoint that is older than this start") +
      "; forge check compares the products of all ranks");
}

FORGE_INSTANTIATE_CLASS(GradientCheck);

}  // namespace forge
