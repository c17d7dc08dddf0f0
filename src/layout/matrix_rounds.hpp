#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace forge {

// Matrices of one shape: the FLOPs of one's update, its elements, and how many there are.
struct MatrixClass {
  double flops = 0;
  std::int64_t elements = 0;
  std::size_t matrices = 0;
};

// A matrix in a round: its class, its number there, and the rank that owns it.
struct RoundMember {
  std::size_t shape = 0, matrix = 0;
  int owner = 0;
};

// Elements of an owner's matrices that are updated as one stack, where one matrix isn't larger.
inline constexpr std::int64_t most_stacked = std::int64_t{1} << 24;
// Elements of a round on a rank, where one matrix isn't larger: a shard may have all matrices of a shape.
inline constexpr std::int64_t most_held = std::int64_t{1} << 26;

// A rank that holds elements of a matrix, and how many.
struct PartOfRank {
  int rank = 0;
  std::int64_t elements = 0;
};
// The ranks that hold elements of a matrix, each once, by the matrix' class and its number there.
using HeldByRanks = std::function<std::vector<PartOfRank>(std::size_t shape, std::size_t matrix)>;

// Deals matrices to rounds and owners; classes stand by their FLOPs, most first. In each round the next of a class go
// to the owner with the least work of the round, classes in their order (longest processing time first, Graham 1969),
// as long as the owner has room (as many elements as a stack or the largest matrix), and all that hold parts. A round
// ends where its work is as even as it gets; with more ranks than one also where it is even and an eighth of all work,
// since no work hides the first round's way to the owners.
std::vector<std::vector<RoundMember>> matrix_rounds(const std::vector<MatrixClass>& classes, int ranks,
                                                    const HeldByRanks& held);

}  // namespace forge
