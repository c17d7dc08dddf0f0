#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace forge::test {

// A process' calls of MPI, seen by wrappers of MPI's own functions (PMPI) in this executable: every send of anybody
// passes here. Bytes of a call are its arguments' bytes; for the collectives the least that each
// rank of the communicator sends, by their definition: an all-gather of k elements a rank k (n − 1), an all-reduce of k
// elements 2 k (n − 1) / n, a broadcast k at its root.
struct HandedOver {
  std::int64_t all_reduce = 0, all_gather = 0, broadcast = 0;
  std::int64_t messages = 0;  // to other ranks, one by one, without waiting
  std::int64_t host = 0;      // of operations that wait: host values
  std::int64_t calls = 0;     // of all these
};

// By the ranks of the communicator, in MPI_COMM_WORLD's numbers, in the communicator's order.
std::map<std::vector<int>, HandedOver> handed_over();
void forget_handed_over();

// Whether this thread is inside one of the wrapped functions or of those that wait.
bool inside_mpi();

// Names of the functions of MPI that the wrappers know: those that send, and those that don't.
const std::vector<std::string>& known_mpi_functions();

}  // namespace forge::test
