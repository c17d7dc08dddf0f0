#pragma once

#include <string>
#include <vector>

#include "parallel/storage.hpp"

namespace forge {

// The parameters of which this rank holds a weight that is NaN or Inf, by the names of the family's files or, with
// `own_names`, by forge's.
template <class T>
std::vector<std::string> tensors_not_finite(const ParameterStorage<T>& storage, Stream& stream, bool own_names);

}  // namespace forge
