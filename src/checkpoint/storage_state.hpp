#pragma once

#include <vector>

#include "checkpoint/state.hpp"
#include "config/state_spec.hpp"
#include "parallel/storage.hpp"

namespace forge {

// The state of a rank's parameters as tensors of a checkpoint: "parameters/<name>" (master weights, in their type), and
// the optimizer's states: of AdamW "first_moment/<name>" and "second_moment/<name>". Where the weights to use are
// averages of the master weights, "parameters" are the averages, in the memory of the gradients
// (Session::put_averages), and "trained_parameters" the master weights. A layer's experts are one tensor:
// "layers.3.experts.7.up" is row 7 of "layers.3.experts.up", of shape (E, Fe, C).

enum class StateUse {
  write,  // this rank's part: each element of the model is written by one rank; the replicas share the work
  read,   // all of this rank's elements, copies included
};
struct StateParts {
  bool parameters = true, optimizer = true;
  bool amax_history = true;  // with the parameters, where the recipe keeps one
};

// `experts`: E of the whole model. The pieces point into the storage.
template <class T>
std::vector<StateTensor> state_of(const ParameterStorage<T>& storage, std::int64_t experts, StateUse use,
                                  StateParts parts = {});

// Where a parameter stands in its checkpoint's tensor.
struct TensorPlace {
  std::string name;  // without group
  Extents shape;
  std::int64_t expert = -1;  // the first index, −1: the parameter is the tensor
  std::int64_t strip = 0;

  Box box(const Box& of_parameter) const;
};
TensorPlace place_of(const Parameter& parameter, std::int64_t experts);

// Where a state of a matrix, rows of a parameter, stands in its checkpoint. Of several matrices in one tensor (q, k and
// v) each has a tensor of its own for states of columns, and squares, which are no part of the common tensor's.
struct StatePlace {
  std::string name;
  Extents shape;
  Box box;
};
StatePlace place_of_state(const StateSpec& state, const Parameter& parameter, std::int64_t experts, const Range& rows);

// The ranges of a unit's flat buffer that this rank writes.
std::vector<Range> written_ranges(const LocalUnit& unit);

}  // namespace forge
