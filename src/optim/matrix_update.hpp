#pragma once

#include <array>
#include <optional>
#include <vector>

#include "device/side_stream.hpp"
#include "optim/newton_schulz.hpp"
#include "optim/rotation.hpp"
#include "optim/update.hpp"
#include "optim/update_tools.hpp"
#include "parallel/storage.hpp"

namespace forge {

// Updates matrices whole, in the rounds of layout/whole_matrices.hpp: the ranks that hold parts of a matrix prepare the
// owner's input from them and send it there, behind the work on the round before; the owner computes and sends each
// part of the result back; each rank updates its parts. The owner's rank makes no difference to the result.
template <class T>
class MatrixUpdate {
 public:
  MatrixUpdate(const ParameterStorage<T>& storage, const OptimizerDeck& deck, const UpdateTools<T>& tools);

  // Takes memory for the calls until finish(), which throws errors of work in the background.
  void start();
  void finish();
  // The tasks of matrices of plan/tasks.hpp, in their order: of a round, in a buffer of the memory.
  void gather(Stream& compute, int round, int buffer, const Update& update);
  void compute(Stream& compute, int round, int buffer, const Update& update);
  void give_back(Stream& compute, int round, int buffer);
  void update(Stream& compute, int round, int buffer, const Update& update);
  void set_operation_tape(OperationTape* tape) {
    newton_schulz_.set_tape(tape);
    rotation_.set_tape(tape);
  }

 private:
  // Parts that follow each other, as elements to update.
  struct Held {
    UpdateArgs<T> run;
    std::int64_t at;
    double scale;  // of the matrices' shape
  };
  struct Round {
    const MatrixRound& plan;
    std::vector<Held> held;
  };

  // Parts to the owners, or of the results back.
  void exchange(Stream& stream, int round, int buffer, bool back);
  // The owner's updates of a stack, which stands in buffers.x: there, or in y.
  View<T, 1> updates_of(Stream& stream, const MatrixStack& stack, const Update& update);
  View<T, 1> memory_of(const OwnedPart& part, int buffer) const;

  const OptimizerDeck deck_;
  UpdateTools<T> tools_;
  std::vector<Round> rounds_;
  std::optional<Frame> frame_;
  MatrixBuffers<T> buffers_;
  NewtonSchulz<T> newton_schulz_;
  Rotation<T> rotation_;
  SideStream stream_;  // none: nothing is ever sent
  std::array<Event, 3> gathered_, returned_;
};

}  // namespace forge
