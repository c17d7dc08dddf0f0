#pragma once

#include <memory>
#include <vector>

#include "config/deck.hpp"
#include "optim/factored_update.hpp"
#include "optim/head_clip.hpp"
#include "optim/learning_rate.hpp"
#include "optim/matrix_update.hpp"
#include "optim/update.hpp"
#include "parallel/storage.hpp"

namespace forge {

// The deck's optimizer over the flat buffers of a rank.
template <class T>
class Optimizer {
 public:
  Optimizer(const ParameterStorage<T>& storage, const OptimizerDeck& deck, const UpdateTools<T>& tools);

  // The tasks of plan/tasks.hpp. Nothing changes unless update.scalars say that all is finite; updates that were
  // skipped have no number. Of elements that are updated one by one.
  void update_elements(Stream& stream, const Update& update) const;
  // Updates a unit whose second moments are of rows and columns (layout/factored_moments.hpp), with two sums over the
  // ranks that share it.
  void update_factored(Stream& stream, std::size_t unit, const Update& update) const;
  // QK-clip, behind all that.
  void clip_heads(Stream& stream, const Update& update) const { heads_(stream, update); }
  // Matrices that are updated whole, between start() and finish(), which throws errors of work in the background.
  void start() {
    if (matrices_) matrices_->start();
  }
  void finish() {
    if (matrices_) matrices_->finish();
  }
  MatrixUpdate<T>& matrices() { return *matrices_; }
  void set_operation_tape(OperationTape* tape) {
    if (matrices_) matrices_->set_operation_tape(tape);
  }

 private:
  OptimizerDeck deck_;
  const ParameterStorage<T>& storage_;
  UpdateTools<T> tools_;
  HeadClip<T> heads_;
  std::vector<UpdateArgs<T>> runs_;            // of elements that are updated one by one
  std::unique_ptr<MatrixUpdate<T>> matrices_;  // null: none is updated whole
};

}  // namespace forge
