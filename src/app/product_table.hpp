#pragma once

#include <cstddef>
#include <string>

#include "kernels/product_algorithms.hpp"

namespace forge {

// Files of machine.product_algorithms: a line for the library and one for the GPU that they belong to, then one for
// each shape, "SHAPE = 128 hexadecimal digits, MICROSECONDS us, first FIRST us".

inline constexpr std::size_t most_product_table_bytes = 64u << 20;

// Reads one. Throws BadInput, with the line, for what is no such file, and for one of another library or GPU than this
// rank's.
ProductAlgorithms read_product_algorithms(const std::string& path);

std::string product_algorithms_text(const ProductAlgorithms& algorithms);
// The shapes of such a text, of this or another rank: those that are there already stay.
void add_product_algorithms(const std::string& text, const std::string& path, ProductAlgorithms& to);

}  // namespace forge
