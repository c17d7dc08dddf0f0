#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/hf_source.hpp"
#include "config/deck.hpp"
#include "core/types.hpp"

namespace forge {

// The frozen model that a run's adapters stand beside, in the files that it was read from: a checkpoint has it rounded
// to the type that computes.
class BaseFiles {
 public:
  // Null where the run has read none, or they are no longer there.
  static std::unique_ptr<BaseFiles> of(const ModelDeck& model);

  // A tensor's values in the order of the family's files; of a part of a packed tensor in its own order. Throws
  // BadInput where it isn't there, or has other values than the checkpoint, whose are `stored`, in the same order and
  // rounded to `type`.
  template <class A>
  std::vector<A> values(const Parameter& parameter, const std::vector<float>& stored, DType type) const;

 private:
  explicit BaseFiles(const std::string& directory);
  template <class A>
  std::vector<A> read(const Parameter& parameter) const;

  std::string directory_;
  TensorFiles files_;
};

}  // namespace forge
