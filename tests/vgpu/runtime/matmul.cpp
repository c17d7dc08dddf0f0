#include "matmul.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "device.hpp"
#include "fail.hpp"
#include "numbers.hpp"

namespace vgpu {

std::size_t size_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return 1;
  }
}

namespace {

// ---- arithmetic on packed operands

constexpr std::size_t tile_rows = 4, tile_columns = 64;

// sums(r, c) += Σ_l a(r, l) b(l, c) for a tile of at most 4 x 64: a row-major with `k` columns, b with `columns`.
#if defined(__x86_64__) && !defined(VGPU_TSAN)
// The choice between them comes before the sanitizer is there.
#define VGPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VGPU_CLONES
#endif
template <class A>
inline __attribute__((always_inline)) void tile(const A* a, const A* b, A* sums, std::size_t k, std::size_t rows,
                                                std::size_t columns, std::size_t begin, std::size_t end,
                                                std::size_t width) {
  A part[tile_rows][tile_columns] = {};
  for (std::size_t l = begin; l < end; ++l)
    for (std::size_t r = 0; r < tile_rows; ++r) {
      const A x = r < rows ? a[r * k + l] : A(0);
      for (std::size_t c = 0; c < tile_columns; ++c) part[r][c] += x * b[l * columns + c];
    }
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < width; ++c) sums[r * columns + c] = part[r][c];
}
VGPU_CLONES void tile_of(const float* a, const float* b, float* sums, std::size_t k, std::size_t rows,
                         std::size_t columns, std::size_t begin, std::size_t end, std::size_t width) {
  tile(a, b, sums, k, rows, columns, begin, end, width);
}
VGPU_CLONES void tile_of(const double* a, const double* b, double* sums, std::size_t k, std::size_t rows,
                         std::size_t columns, std::size_t begin, std::size_t end, std::size_t width) {
  tile(a, b, sums, k, rows, columns, begin, end, width);
}

// (rows, columns) row-major, or its transpose, of the column-major matrix; rows of the result have `pitch` elements.
template <class A>
std::vector<A> pack(const Matrix& m, const char* data, bool transpose, std::size_t pitch) {
  const std::size_t rows = transpose ? m.columns : m.rows, columns = transpose ? m.rows : m.columns;
  std::vector<A> packed(rows * pitch, A(0));
  const auto leading = static_cast<std::size_t>(m.leading);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      packed[r * pitch + c] = load<A>(m.type, data, transpose ? c + r * leading : r + c * leading);
  return packed;
}

// Factors of a packed matrix (rows, columns), whose lines are its rows or its columns.
template <class A>
void scale(std::vector<A>& packed, std::size_t rows, std::size_t columns, std::size_t pitch, bool lines_are_rows,
           const Factors& factors, const float* values) {
  const std::size_t lines = lines_are_rows ? rows : columns, k = lines_are_rows ? columns : rows;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      packed[r * pitch + c] *=
          static_cast<A>(values[lines_are_rows ? factors.at(r, c, lines, k) : factors.at(c, r, lines, k)]);
}

// Column-major D is row-major Dᵀ = op(B)ᵀ op(A)ᵀ: (n, m) = (n, k) (k, m).
template <class A>
class Arithmetic {
 public:
  Arithmetic(const Product& p, const Memory& memory)
      : m_(p.d.rows),
        n_(p.d.columns),
        k_(p.inner()),
        pitch_((m_ + tile_columns - 1) / tile_columns * tile_columns),
        left_(pack<A>(p.b, memory.inner(p.b_data), !p.transpose_b, k_)),
        right_(pack<A>(p.a, memory.inner(p.a_data), !p.transpose_a, pitch_)) {
    if (!is_fp8(p.a.type)) return;
    const auto values = [&](const Factors& f) { return reinterpret_cast<const float*>(memory.inner(f.data)); };
    scale(left_, n_, k_, k_, true, p.b_factors, values(p.b_factors));
    scale(right_, k_, m_, pitch_, false, p.a_factors, values(p.a_factors));
  }

  // Sums over the part `split` of `splits` of the inner dimension, (n, m) with rows of `pitch()`.
  std::vector<A> part(int split, int splits) const {
    const std::size_t begin = k_ * static_cast<std::size_t>(split) / static_cast<std::size_t>(splits);
    const std::size_t end = k_ * static_cast<std::size_t>(split + 1) / static_cast<std::size_t>(splits);
    std::vector<A> sums(n_ * pitch_);
    for (std::size_t r = 0; r < n_; r += tile_rows)
      for (std::size_t c = 0; c < m_; c += tile_columns)
        tile_of(left_.data() + r * k_, right_.data() + c, sums.data() + r * pitch_ + c, k_, std::min(tile_rows, n_ - r),
                pitch_, begin, end, std::min(tile_columns, m_ - c));
    return sums;
  }
  std::size_t pitch() const { return pitch_; }

 private:
  std::size_t m_, n_, k_, pitch_;
  std::vector<A> left_, right_;
};

class ProductWork final : public Work {
 public:
  explicit ProductWork(const Product& product) : p_(product) {}

  bool step(Device& device) override {
    const bool fp64 = p_.in_fp64();
    if (!begun_) {
      begun_ = true;
      fp64 ? begin<double>(device) : begin<float>(device);
      return false;
    }
    fp64 ? finish<double>(device) : finish<float>(device);
    return true;
  }
  std::unique_ptr<Work> again() const override { return std::make_unique<ProductWork>(p_); }
  std::string text() const override {
    return "a product of " + std::to_string(p_.d.rows) + " x " + std::to_string(p_.d.columns) + " x " +
           std::to_string(p_.inner());
  }

 private:
  // Partial sums of dense columns; the whole workspace is written, whatever the partial sums need.
  template <class A>
  void begin(Device& device) {
    if (p_.workspace_bytes == 0) return;
    std::vector<char> content(p_.workspace_bytes);
    stamp_ = device.random().next();
    for (std::size_t i = 0; i + sizeof stamp_ <= content.size(); i += sizeof stamp_)
      std::memcpy(&content[i], &stamp_, sizeof stamp_);
    if (p_.splits > 1) {
      const Arithmetic<A> arithmetic(p_, device.memory());
      const std::size_t m = p_.d.rows, n = p_.d.columns;
      for (int s = 0; s < p_.splits; ++s) {
        const std::vector<A> sums = arithmetic.part(s, p_.splits);
        for (std::size_t j = 0; j < n; ++j)
          std::memcpy(&content[((static_cast<std::size_t>(s) * n + j) * m) * sizeof(A)], &sums[j * arithmetic.pitch()],
                      m * sizeof(A));
      }
    }
    std::memcpy(device.memory().inner(p_.workspace), content.data(), content.size());
    kept_ = std::move(content);
  }

  template <class A>
  void finish(Device& device) {
    if (!kept_.empty() && std::memcmp(device.memory().inner(p_.workspace), kept_.data(), kept_.size()) != 0)
      fail("cuBLASLt, " + text() + ": another work has written into its workspace meanwhile; a workspace is one " +
           "stream's at a time");
    const std::size_t m = p_.d.rows, n = p_.d.columns;
    if (p_.splits > 1) {
      std::vector<A> sums(m * n, A(0));
      for (int s = 0; s < p_.splits; ++s)
        for (std::size_t i = 0; i < m * n; ++i) {
          A x;
          std::memcpy(&x, &kept_[(static_cast<std::size_t>(s) * m * n + i) * sizeof(A)], sizeof x);
          sums[i] += x;
        }
      return store_result(p_, device.memory(), sums, m);
    }
    for (std::int32_t number = 0; number < p_.d.count; ++number) {
      const Product one = p_.of_batch(number);
      const Arithmetic<A> arithmetic(one, device.memory());
      store_result(one, device.memory(), arithmetic.part(0, 1), arithmetic.pitch());
    }
  }

  // beta 0 reads no C.
  template <class A>
  static void store_result(const Product& p, const Memory& memory, const std::vector<A>& sums, std::size_t pitch) {
    const A alpha = static_cast<A>(p.alpha), beta = static_cast<A>(p.beta);
    const char* c = beta != 0 ? memory.inner(p.c_data) : nullptr;
    char* d = memory.inner(p.d_data);
    for (std::size_t j = 0; j < p.d.columns; ++j)
      for (std::size_t i = 0; i < p.d.rows; ++i) {
        A value = alpha * sums[j * pitch + i];
        if (c) value += beta * load<A>(p.c.type, c, i + j * static_cast<std::size_t>(p.c.leading));
        store(p.d.type, d, i + j * static_cast<std::size_t>(p.d.leading), value);
      }
  }

  Product p_;
  bool begun_ = false;
  std::uint64_t stamp_ = 0;
  std::vector<char> kept_;  // what the workspace must still hold
};

class SumWork final : public Work {
 public:
  explicit SumWork(const Sum& sum) : s_(sum) {}

  bool step(Device& device) override {
    const Memory& memory = device.memory();
    const char *a = memory.inner(s_.a_data), *b = s_.beta != 0 ? memory.inner(s_.b_data) : nullptr;
    char* c = memory.inner(s_.c_data);
    for (std::size_t j = 0; j < s_.c.columns; ++j)
      for (std::size_t i = 0; i < s_.c.rows; ++i) {
        double value = s_.alpha * load<double>(s_.a.type, a, i + j * static_cast<std::size_t>(s_.a.leading));
        if (b) value += s_.beta * load<double>(s_.b.type, b, i + j * static_cast<std::size_t>(s_.b.leading));
        store(s_.c.type, c, i + j * static_cast<std::size_t>(s_.c.leading), value);
      }
    return true;
  }
  std::unique_ptr<Work> again() const override { return std::make_unique<SumWork>(s_); }
  std::string text() const override { return "a transformation of a matrix"; }

 private:
  Sum s_;
};

}  // namespace

std::unique_ptr<Work> product_work(const Product& product) {
  return std::make_unique<ProductWork>(product);
}
std::unique_ptr<Work> sum_work(const Sum& sum) {
  return std::make_unique<SumWork>(sum);
}

}  // namespace vgpu
