#include "hf/fp8/block_scales.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "config/fp8_format.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

std::int64_t blocks_of(std::int64_t extent) {
  return (extent + scale_block - 1) / scale_block;
}

// The numbers of all codes of E4M3.
std::array<float, 256> make_values() {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    const int exponent = static_cast<int>(code >> 3 & 15), mantissa = static_cast<int>(code & 7);
    float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                    : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((code & 0x7f) == 0x7f) magnitude = std::numeric_limits<float>::quiet_NaN();
    values[code] = code & 0x80 ? -magnitude : magnitude;
  }
  return values;
}

std::string place_text(std::int64_t row, std::int64_t column) {
  return " at " + shape_text({row, column});
}

// The scales between two of a weight, in the order of the file.
struct Scales {
  std::int64_t first = 0, columns = 1;  // of the first one; of the whole tensor of scales
  std::vector<float> values;

  float at(std::int64_t row, std::int64_t column) const {
    return values[to_size(row / scale_block * columns + column / scale_block - first)];
  }
};

// Those that elements first … last of a weight need.
Scales read_scales(const TensorFiles& files, const TensorInfo& weight, std::int64_t first, std::int64_t last) {
  const TensorInfo& info = *files.find(scale_name(weight.name));
  const std::int64_t n = weight.shape[1];
  const bool one_row = first / n == last / n;
  Scales scales;
  scales.columns = info.shape[1];
  scales.first = first / n / scale_block * scales.columns + (one_row ? first % n / scale_block : 0);
  const std::int64_t end =
      last / n / scale_block * scales.columns + (one_row ? last % n / scale_block + 1 : scales.columns);
  scales.values.resize(to_size(end - scales.first));
  files.read(info, std::span<float>(scales.values), scales.first);
  for (std::size_t i = 0; i < scales.values.size(); ++i)
    if (const float s = scales.values[i]; !(s >= 0) || std::isinf(s)) {
      const std::int64_t at = scales.first + static_cast<std::int64_t>(i);
      throw BadInput(files.file_of(info) + ": tensor " + info.name + " has " + std::to_string(s) +
                     place_text(at / scales.columns, at % scales.columns) + "; legal: finite numbers, from 0");
    }
  return scales;
}

template <class A>
void read_scaled(const TensorFiles& files, const TensorInfo& weight, std::span<A> out, std::int64_t first) {
  static const std::array<float, 256> values = make_values();
  constexpr std::size_t chunk = 1 << 22;  // each opens the file anew
  std::vector<std::uint8_t> codes(std::min(out.size(), chunk));
  const std::int64_t n = weight.shape[1];
  for (std::size_t done = 0; done < out.size(); done += chunk) {
    const std::span<A> to = out.subspan(done, std::min(chunk, out.size() - done));
    const std::int64_t begin = first + static_cast<std::int64_t>(done), end = begin + std::ssize(to);
    files.read_bytes(weight, std::as_writable_bytes(std::span(codes).first(to.size())), begin);
    const Scales scales = read_scales(files, weight, begin, end - 1);
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t row = at / n, column = at % n;
      const std::int64_t block_end = std::min(n, (column / scale_block + 1) * scale_block);
      const A scale = static_cast<A>(scales.at(row, column));
      for (const std::int64_t stop = std::min(end, row * n + block_end); at < stop; ++at) {
        const A value = static_cast<A>(values[codes[to_size(at - begin)]]) * scale;
        if (!std::isfinite(value))
          throw BadInput(files.file_of(weight) + ": tensor " + weight.name + " is not finite" +
                         place_text(row, at % n) + "; legal: numbers of E4M3 times their scale");
        to[to_size(at - begin)] = value;
      }
    }
  }
}

}  // namespace

std::string scale_name(const std::string& weight) {
  return weight + "_scale_inv";
}

std::vector<std::int64_t> scale_shape(const std::vector<std::int64_t>& weight) {
  return {blocks_of(weight[0]), blocks_of(weight[1])};
}

std::string weight_problem(const TensorFiles& files, const TensorInfo& weight, bool coded) {
  const std::string head = files.file_of(weight) + ": tensor " + weight.name;
  const TensorInfo* scales = files.find(scale_name(weight.name));
  if (weight.type != code_type) {
    static constexpr std::array plain = {"F64", "F32", "BF16", "F16"};
    if (std::find(plain.begin(), plain.end(), weight.type) == plain.end())
      return head + " has dtype " + weight.type + "; legal: F64 | F32 | BF16 | F16 | " + code_type;
    return scales ? head + " has dtype " + weight.type + " and scales; legal: " + code_type + ", or no " + scales->name
                  : "";
  }
  if (!coded) return head + " has dtype " + code_type + ", but config.json has no quantization_config";
  if (weight.shape.size() != 2)
    return head + " has dtype " + code_type + " and shape " + shape_text(weight.shape) + "; legal: of matrices";
  const std::vector<std::int64_t> shape = scale_shape(weight.shape);
  if (!scales)
    return head + " has no scales: tensor " + scale_name(weight.name) + " " + shape_text(shape) + " is missing";
  if (scales->type == "F32" && scales->shape == shape) return "";
  return files.file_of(*scales) + ": tensor " + scales->name + " is " + scales->type + " " + shape_text(scales->shape) +
         "; legal: F32 " + shape_text(shape) + ", one for each 128 x 128 of " + shape_text(weight.shape);
}

template <class A>
void read_weight(const TensorFiles& files, const TensorInfo& weight, std::span<A> out, std::int64_t first) {
  if (weight.type != code_type) return files.read(weight, out, first);
  if (!out.empty()) read_scaled(files, weight, out, first);
}
template void read_weight<float>(const TensorFiles&, const TensorInfo&, std::span<float>, std::int64_t);
template void read_weight<double>(const TensorFiles&, const TensorInfo&, std::span<double>, std::int64_t);

BlockScaled block_scaled(const std::string& name, std::span<const float> values, std::int64_t rows,
                         std::int64_t columns) {
  const std::int64_t across = blocks_of(columns);
  BlockScaled result{std::vector<std::uint8_t>(values.size()),
                     std::vector<float>(to_size(blocks_of(rows) * across), 0)};
  std::vector<float>& amax = result.scale_inv;
  const auto for_each = [&](auto f) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        f(to_size(i * columns + j), to_size(i / scale_block * across + j / scale_block));
  };
  for_each([&](std::size_t element, std::size_t block) {
    const float magnitude = std::abs(values[element]);
    if (!std::isfinite(magnitude))
      throw BadInput("tensor " + name + " holds NaN or Inf, which has no place in FP8; legal: --type fp32 | bf16");
    amax[block] = std::max(amax[block], magnitude);
  });
  std::vector<float> scales;
  for (float& a : amax) {
    scales.push_back(fp8_scale(a, Fp8Format::e4m3, false));
    a = 1 / scales.back();
  }
  for_each([&](std::size_t element, std::size_t block) {
    result.codes[element] = fp8_code(round_to_fp8(values[element] * scales[block], Fp8Format::e4m3), Fp8Format::e4m3);
  });
  return result;
}

}  // namespace forge
