#include "nn/delta_rule.plan.hpp"

namespace forge {

namespace {

class RuleLister {
 public:
  explicit RuleLister(Segments& list) : list_(list), s_(delta_shape(list.c)) {}

  void forward() {
    prepare();
    for (std::int64_t c = 0; c < s_.chunks(); ++c) {
      if (c > 0) {
        rows(s_.heads(), s_.value_dim, s_.key_dim);
        rows(s_.heads(), s_.value_dim, s_.key_dim);
      }
      if (c + 1 == s_.chunks()) break;
      if (c > 0) scale_state();
      sums(s_.heads(), s_.key_dim, s_.value_dim);
    }
    scale_rows(s_.value_dim);
    rows(s_.groups(), s_.value_dim, s_.chunk());
    kernel("delta_join", of_rows(s_.value_dim), of_batch(values()));
  }

  void backward() {
    prepare();
    states();
    kernel("delta_cut", of_batch(values()), of_rows(s_.value_dim));
    rows(s_.groups(), s_.chunk(), s_.value_dim);
    sums(s_.groups(), s_.chunk(), s_.value_dim);
    scale_rows(s_.key_dim);
    for (std::int64_t c = s_.chunks() - 1; c >= 0; --c) chunk_backward(c);
    if (s_.chunks() > 1) {
      const std::int64_t groups = (s_.chunks() - 1) * s_.heads();
      for (int i = 0; i < 2; ++i) rows(groups, s_.key_dim, s_.value_dim);
    }
    solve(s_.value_dim);
    solve(s_.key_dim);
    rows(s_.groups(), s_.chunk(), s_.value_dim);
    rows(s_.groups(), s_.chunk(), s_.key_dim);
    const std::int64_t square = of_rows(s_.chunk());
    kernel("delta_masks_backward", 10 * square, 2 * square, 2);
    rows(s_.groups(), s_.key_dim, s_.chunk());
    sums(s_.groups(), s_.chunk(), s_.key_dim);
    rows(s_.groups(), s_.key_dim, s_.chunk());
    sums(s_.groups(), s_.chunk(), s_.key_dim);
    const std::int64_t keys = of_rows(s_.key_dim);
    kernel("delta_combine", of_batch(s_.channels()) + 7 * keys + of_rows(s_.value_dim), 2 * keys);
    kernel("delta_sums_backward", of_rows(2), of_rows(1));
    kernel("delta_split_backward", of_batch(s_.channels()) + 2 * keys + of_rows(s_.value_dim),
           of_batch(s_.channels() + 2 * s_.value_heads) + sums_of_batch(s_.value_heads));
  }

 private:
  void prepare() {
    const std::int64_t keys = of_rows(s_.key_dim), square = of_rows(s_.chunk());
    kernel("delta_split", of_batch(s_.channels()), 2 * keys + of_rows(s_.value_dim) + of_rows(2));
    kernel("delta_sums", of_rows(1), of_rows(3));
    for (int i = 0; i < 2; ++i) rows(s_.groups(), s_.chunk(), s_.key_dim);
    kernel("delta_masks", keys + 2 * square, 2 * square + 2 * keys);
    solve(s_.value_dim);
    solve(s_.key_dim);
  }
  void states() {
    for (std::int64_t c = 0; c < s_.chunks(); ++c) {
      if (c > 0) rows(s_.heads(), s_.value_dim, s_.key_dim);
      if (c + 1 == s_.chunks()) break;
      if (c > 0) scale_state();
      sums(s_.heads(), s_.key_dim, s_.value_dim);
    }
  }
  void chunk_backward(std::int64_t c) {
    const bool has_next = c + 1 < s_.chunks();
    if (has_next) {
      rows(s_.heads(), s_.value_dim, s_.key_dim);
      rows(s_.heads(), s_.key_dim, s_.value_dim);
      if (c > 0) kernel("delta_state_slope", 2 * state(), 0);
    }
    if (c == 0) return;
    if (has_next) scale_state();
    for (int i = 0; i < 2; ++i) sums(s_.heads(), s_.key_dim, s_.value_dim);
  }

  // C(rows of a group, n) = A(rows, k) B(k, n), and C(m, n) = A(rows, m)ᵀ B(rows, n).
  void rows(std::int64_t groups, std::int64_t n, std::int64_t k) {
    list_.chunk_product(false, groups, rows_of(groups), n, k);
  }
  void sums(std::int64_t groups, std::int64_t m, std::int64_t n) {
    list_.chunk_product(true, groups, rows_of(groups), m, n);
  }
  std::int64_t rows_of(std::int64_t groups) const { return groups * s_.chunk(); }

  void kernel(std::string_view name, std::int64_t read, std::int64_t written, std::int64_t launches = 1) {
    list_.add(RowKernel{name, s_.rows(), s_.value_dim, read, written, launches});
  }
  void solve(std::int64_t n) { kernel("delta_solve", of_rows(s_.chunk() + n), of_rows(n)); }
  void scale_state() { kernel("delta_scale_rows", state(), state()); }
  void scale_rows(std::int64_t n) { kernel("delta_scale_rows", of_rows(n), of_rows(n)); }
  std::int64_t values() const { return s_.value_heads * s_.value_dim; }
  std::int64_t state() const { return s_.heads() * s_.key_dim * s_.value_dim * sum_bytes(); }
  // Bytes of so many numbers for each of the working rows, or of the batch's.
  std::int64_t of_rows(std::int64_t n) const { return s_.rows() * n * sum_bytes(); }
  std::int64_t sums_of_batch(std::int64_t n) const { return batch_rows() * n * sum_bytes(); }
  std::int64_t of_batch(std::int64_t n) const {
    return batch_rows() * n * static_cast<std::int64_t>(size_of(list_.c.precision.compute));
  }
  std::int64_t batch_rows() const { return s_.sequences * s_.tokens; }
  std::int64_t sum_bytes() const { return static_cast<std::int64_t>(size_of(list_.c.precision.accumulate)); }

  Segments& list_;
  const DeltaShape s_;
};

}  // namespace

void list_delta_rule(Segments& list, bool backward) {
  RuleLister rule(list);
  backward ? rule.backward() : rule.forward();
}

}  // namespace forge
