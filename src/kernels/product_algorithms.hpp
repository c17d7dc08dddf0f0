#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace forge {

// Algorithms of the library of products on GPUs, by the text of a product's shape, types and alignment: those that
// `forge tune` found fastest. Elsewhere the library's first proposal is taken.
struct ProductAlgorithms {
  using Words = std::array<std::uint64_t, 8>;  // a cublasLtMatmulAlgo_t
  struct Entry {
    Words words{};
    double seconds = 0, first_seconds = 0;  // of a call; of the library's first proposal

    bool operator==(const Entry&) const = default;
  };
  std::map<std::string, Entry> by_shape;
};

// "cuBLASLt 130100": what algorithms are of. Empty on the CPU, whose library has none to choose from.
std::string products_library();

}  // namespace forge
