#pragma once

#include "comm/world.hpp"
#include "data/batch_rows.hpp"
#include "data/sample_stream.hpp"
#include "train/session.hpp"

namespace forge {

// Gradients of a step computed twice: by each data-parallel group from its own samples, and by the group before it from
// these samples. The same kernels have the same numbers, so checksums of all that a rank gives to reductions are equal,
// bit for bit; where they are not, a processor or a memory went wrong in between.
template <class T>
class GradientCheck {
 public:
  // `world`: for the names of nodes; null: none.
  GradientCheck(Session<T>& session, const World* world) : session_(session), world_(world) {}

  bool due(std::int64_t step) const;
  // Collective: the gradients of the step from the samples of the next data-parallel group, and their checksum. The
  // step's own gradients follow, then compare().
  void compute_next(const SampleStream& stream, std::int64_t step, const LabelCounts& labels);
  // Collective. Throws with `replicas_differ` on every rank, naming the ranks that went wrong for certain, or perhaps.
  void compare(std::int64_t step);

 private:
  int groups() const { return session_.setup().mesh.data_parallel(); }
  // The distance to the next group that shares no ep group with this one.
  int distance() const { return session_.setup().mesh.data_parallel_together(); }
  // Whether this rank differs in as many of its two comparisons as any rank does.
  bool suspected(std::uint64_t own);
  [[noreturn]] void refuse(std::int64_t step, bool suspected);

  Session<T>& session_;
  const World* world_;
  std::uint64_t next_ = 0;   // checksum of the next group's gradients, as computed here
  std::int64_t agreed_ = 0;  // the last step whose gradients agreed
};

}  // namespace forge
