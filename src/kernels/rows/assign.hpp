#pragma once

#include "core/types.hpp"

namespace forge {

// to = from, converted.
template <class To, class From>
FORGE_INLINE void assign(To& to, const From& from) {
  to = To(from);
}
// Assigns as an integer: loops over the assignment of a class don't vectorise.
FORGE_INLINE void assign(bf16& to, const bf16& from) {
  to.bits = from.bits;
}

}  // namespace forge
