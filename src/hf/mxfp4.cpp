#include "hf/mxfp4.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "core/types.hpp"

namespace forge {

namespace {

constexpr std::array<float, 8> e2m1_magnitudes{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};  // of E2M1; the highest bit is the sign

float e2m1_value(unsigned code) {
  return (code & 8U) != 0 ? -e2m1_magnitudes[code & 7U] : e2m1_magnitudes[code & 7U];
}

std::vector<std::uint8_t> bytes_of_rows(const TensorFiles& files, const TensorInfo& tensor, std::int64_t first,
                                        std::int64_t count) {
  std::vector<std::uint8_t> bytes(to_size(count));
  files.read_bytes(tensor, std::as_writable_bytes(std::span(bytes)), first);
  return bytes;
}

}  // namespace

std::string mxfp4_problem(const TensorFiles& files, const TensorInfo& blocks, const TensorInfo* scales,
                          const std::vector<std::int64_t>& shape) {
  const std::string head = files.file_of(blocks) + ": tensor " + blocks.name;
  if (shape[2] % mxfp4_block != 0)
    return head + " would have rows of " + std::to_string(shape[2]) + "; legal: a multiple of 32";
  const std::int64_t each = shape[2] / mxfp4_block;
  const std::vector<std::int64_t> of_scales{shape[0], shape[1], each}, of_blocks{shape[0], shape[1], each, 16};
  if (blocks.type != "U8" || blocks.shape != of_blocks)
    return head + " is " + blocks.type + " " + shape_text(blocks.shape) + ", config.json asks for U8 " +
           shape_text(of_blocks);
  if (!scales) return head + " has no scales " + shape_text(of_scales);
  if (scales->type == "U8" && scales->shape == of_scales) return "";
  return files.file_of(*scales) + ": tensor " + scales->name + " is " + scales->type + " " + shape_text(scales->shape) +
         "; legal: U8 " + shape_text(of_scales);
}

template <class A>
void read_mxfp4(const TensorFiles& files, const TensorInfo& blocks, const TensorInfo& scales, std::int64_t columns,
                std::int64_t first_row, std::int64_t step, std::span<A> out) {
  const std::int64_t rows = std::ssize(out) / columns, each = columns / mxfp4_block, bytes = columns / 2;
  constexpr std::int64_t together = 256;  // rows of a read
  for (std::int64_t begin = 0; begin < rows; begin += together) {
    const std::int64_t count = std::min(together, rows - begin), first = first_row + begin * step,
                       span = (count - 1) * step + 1;
    const auto codes = bytes_of_rows(files, blocks, first * bytes, span * bytes),
               exponents = bytes_of_rows(files, scales, first * each, span * each);
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t j = 0; j < columns; ++j) {
        const unsigned byte = codes[to_size(r * step * bytes + j / 2)],
                       exponent = exponents[to_size(r * step * each + j / mxfp4_block)];
        if (exponent == 255)
          throw BadInput(files.file_of(scales) + ": tensor " + scales.name +
                         " has 255, which is no number; legal: 0 to 254");
        out[to_size((begin + r) * columns + j)] = static_cast<A>(
            std::ldexp(e2m1_value(j % 2 == 0 ? byte & 15U : byte >> 4U), static_cast<int>(exponent) - 127));
      }
  }
}
FORGE_INSTANTIATE_ACC_FUNCTION(read_mxfp4);

}  // namespace forge
