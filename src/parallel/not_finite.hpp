#pragma once

#include <string>
#include <vector>

#include "core/bytes.hpp"
#include "core/partials.hpp"
#include "parallel/storage.hpp"

namespace forge {

// The room in an arena that the sums below take.
inline constexpr std::size_t not_finite_bytes = align_up((sum_partials + 1) * sizeof(double));

// The parameters of which this rank holds a weight that is NaN or Inf, by the names of the family's files or, with
// `own_names`, by forge's. Sums stand in the arena behind live buffers; where it has no room for them the host looks.
template <class T>
std::vector<std::string> tensors_not_finite(const ParameterStorage<T>& storage, Stream& stream, Arena& arena,
                                            bool own_names);

}  // namespace forge
