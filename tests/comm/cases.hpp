#pragma once

#include "comm/communicator.hpp"

// The same checks for every kind of communicator. Each is collective, and uses gtest's EXPECT_*.

namespace forge::comm_cases {

// Every operation on device memory, with streams of this kind: all types, odd and empty counts, in place and not.
void all_operations(Communicator& ranks, Stream::Kind kind);
// Sums of rounded numbers: the same bits on every rank and at every repetition, and right to the rounding.
void sums_are_repeatable(Communicator& ranks);
// Point to point: rings in both directions, several messages in a group, to itself, in the order given.
void transfers(Communicator& ranks, Stream::Kind kind);
// Values of the host, texts, agreement.
void host_operations(Communicator& ranks);
// Groups by color, ordered by key; they work side by side, and independently of their parent.
void splits(Communicator& ranks);
// Collectives of two communicators run behind computation in streams of their own.
void overlap(Communicator& ranks);
// The counts of bytes sent.
void traffic(Communicator& ranks);
// The counts of host values.
void host_traffic(Communicator& ranks);

// All of them.
void everything(Communicator& ranks);

}  // namespace forge::comm_cases
