#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fp8/amax_history.hpp"
#include "fp8/codes.hpp"
#include "fp8/kernel_names.hpp"
#include "fp8/saved_amaxes.hpp"

namespace forge {

// What a pass of a layer computes and sends on one rank, in the order in which the code gives it to streams:
// nn/*.plan.cpp list it. A multiply-add counts two operations.

// C(m,n) = or += A(m,k) B(k,n).
struct Product {
  std::int64_t m, n, k;
  DType operands, result;
  bool rounded = false;              // its operands were
  ProductOf of = ProductOf::output;  // says which operands are transposed: B, none, A
  bool codes = false;                // … and their codes are multiplied

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  bool operator==(const Product&) const = default;
};

// A product for each expert of this rank, of `rows` rows of all of them together. Rows: C(rows of e, n) = A(rows of e,
// k) B_e; sums: C_e(n, k) += A(rows of e, n)ᵀ B(rows of e, k).
struct ExpertProduct {
  bool sums;
  std::int64_t experts, rows, n, k;
  DType operands, result;
  bool rounded = false;  // its operands were
  bool grouped = false;  // all of them take one launch
  ProductOf of = ProductOf::output;
  bool described = false;  // … behind one that describes the groups to CUTLASS

  std::int64_t launches() const { return grouped ? 1 + described : experts; }
  double flops() const { return 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k); }
  bool operator==(const ExpertProduct&) const = default;
};

// Rows of a sequence whose positions follow each other.
struct PositionRun {
  std::int64_t begin, length;

  bool operator==(const PositionRun&) const = default;
};
using PositionRuns = std::vector<PositionRun>;
// The runs of one sequence of T tokens on a context-parallel rank (zigzag_positions of layout/row_share.hpp).
PositionRuns position_runs(std::int64_t sequence_tokens, int cp, int cp_rank);

// Attention of some query rows of each sequence to some of its keys, forward or backward.
struct AttentionProduct {
  bool backward;
  std::int64_t sequences, heads, key_heads, head_size, value_size;
  PositionRuns queries, keys;  // of a sequence, in the order of the rows
  std::int64_t window = 0;     // 0: none

  std::int64_t query_rows() const;  // of a sequence
  std::int64_t key_rows() const;
  // (query, key) of a sequence that the mask leaves, of each head; documents cut none.
  double pairs() const;
  // The same of tiles of so many query and key rows in which it leaves any.
  std::int64_t tiles(std::int64_t query_rows, std::int64_t key_rows) const;
  // Forward q kᵀ and p v; backward q kᵀ again, d_o vᵀ, dsᵀ q, ds k and pᵀ d_o.
  double flops() const;
  // Kernels: forward one, backward one for the gradients of keys and values and one for those of queries.
  std::int64_t launches() const { return backward ? 2 : 1; }
  bool operator==(const AttentionProduct&) const = default;
};

// A function over rows, of one kernel or a few. Bytes as a RowTape sees them (device/row_tape.hpp).
struct RowKernel {
  std::string_view name;
  std::int64_t rows, columns, read_bytes, written_bytes, launches = 1;
};

// A part of a pass: something computed, or a collective.
using Segment = std::variant<Product, ExpertProduct, AttentionProduct, RowKernel, Sent>;

// The list of a pass.
class Segments {
 public:
  explicit Segments(const BufferContext& context, int context_rank = 0) : c(context), cp_rank(context_rank) {}
  // Of a context that is the list's own.
  Segments(std::shared_ptr<const BufferContext> own, int context_rank)
      : own_context(std::move(own)), c(*own_context), cp_rank(context_rank) {}

  const std::shared_ptr<const BufferContext> own_context = nullptr;
  const BufferContext& c;
  const ModelSpec& spec = c.spec;
  const int cp_rank;
  const std::int64_t R = c.microbatch.rows(), S = c.stream_rows();
  std::vector<Segment> segments;
  std::vector<bool> behind;  // whether each of them is given to a stream beside the compute stream
  // Collectives behind what follows them, up to the segment before which the compute stream waits for them.
  struct Behind {
    std::size_t collective, end;
  };
  std::vector<Behind> awaited;
  std::vector<ScaledProduct> scaled;          // of the rounded products, in their order
  std::int64_t count_reads = 0;               // times that the host waits for counts of experts' rows
  bool rounds = false;                        // what follows is of a block whose products' operands are rounded
  bool recomputes = false;                    // … and of a pass that has run before
  bool aside = false;                         // … is given to a stream beside the compute stream, where there is one
  bool coded = false, coded_experts = false;  // … whose weights were gathered as codes
  bool frozen = false, frozen_experts = false;  // … of units whose gradients aren't taken

  // Those of one kind, in their order.
  template <class S>
  std::vector<S> all() const {
    std::vector<S> found;
    for (const Segment& segment : segments)
      if (const S* one = std::get_if<S>(&segment)) found.push_back(*one);
    return found;
  }
  template <class S>
  S& add(S segment) {
    behind.push_back(aside);
    return std::get<S>(segments.emplace_back(std::move(segment)));
  }

  // A collective whose group may have one rank alone: then nothing is sent.
  void send(Group group, Collective collective, std::int64_t count, DType type) {
    add(Sent{group, collective, count, type});
  }
  // Rows of the residual stream over tp, so many columns wide, as gather_rows and reduce_rows of nn/rows.hpp.
  void gather_rows(std::int64_t columns) { send(Group::tp, Collective::all_gather, S * columns, value()); }
  void reduce_rows(std::int64_t columns) { send(Group::tp, Collective::reduce_scatter, S * columns, value()); }
  // The same behind what follows, up to wait_behind(), as RowsBehind of nn/rows.hpp.
  void gather_behind(std::int64_t columns) { send_behind(Collective::all_gather, columns); }
  void reduce_behind(std::int64_t columns) { send_behind(Collective::reduce_scatter, columns); }
  void wait_behind() {
    if (sent_behind_) awaited.push_back({*std::exchange(sent_behind_, std::nullopt), segments.size()});
  }

  // y(rows, out) = x(rows, in) Wᵀ; its gradients dx = dy W and dW += dyᵀ x.
  void linear(std::int64_t rows, std::int64_t out, std::int64_t in) {
    add(product_of(ProductOf::output, rows, out, in));
  }
  void linear_to_sums(std::int64_t rows, std::int64_t out, std::int64_t in) {
    add(product_of(ProductOf::output, rows, out, in)).result = sum();
  }
  void linear_backward_input(std::int64_t rows, std::int64_t out, std::int64_t in) {
    add(product_of(ProductOf::input_gradient, rows, out, in));
  }
  void linear_backward_weight(std::int64_t rows, std::int64_t out, std::int64_t in) {
    add(product_of(ProductOf::weight_gradient, rows, out, in));
  }
  // A block's product with a weight W(out, in), rounded where the block's are: its output or one of the gradients.
  // `measured`: what makes its first operand can leave the largest magnitudes of rows; `aligned`: the result and each
  // of its rows begin at multiples of 16 bytes where the number of columns is one of 16.
  void block_linear(ProductOf of, std::int64_t rows, const MatrixSplit& w, bool measured = false, bool aligned = true);
  // Before block_linear() of the one and of the next: the launch that makes the codes of both where joins_codes().
  // There the kernel before the next one makes those of its first operand, but for gradients of weights. Says whether.
  bool join_codes(ProductOf of, std::int64_t rows, const MatrixSplit& w, const MatrixSplit& next);
  // The same of this rank's experts; and of weights (out, in) that are never rounded.
  void expert_linear(ProductOf of, std::int64_t rows, const MatrixSplit& w);
  // A product for each of so many chunks of a recurrence (nn/delta_rule.hpp), in one launch, of sums: rows(n) = rows(k)
  // B(k, n), or with `of_columns` C(n, k) = rows(n)ᵀ rows(k).
  void chunk_product(bool of_columns, std::int64_t groups, std::int64_t rows, std::int64_t n, std::int64_t k) {
    add(ExpertProduct{of_columns, groups, rows, n, k, sum(), sum(), false, true});
  }
  void expert_product(ProductOf of, std::int64_t rows, std::int64_t out, std::int64_t in, bool rounded = false);
  // A kernel that reads and writes so many arrays (rows, columns) of the compute type, and others of the accumulation
  // type.
  RowKernel& over_rows(std::string_view name, std::int64_t rows, std::int64_t columns, std::int64_t reads,
                       std::int64_t writes, std::int64_t sums_read = 0, std::int64_t sums_written = 0) {
    const std::int64_t n = rows * columns, e = bytes(value()), a = bytes(sum());
    return add(RowKernel{name, rows, columns, n * (reads * e + sums_read * a), n * (writes * e + sums_written * a)});
  }
  // Sums of the columns of so many arrays: chunks of rows, then the chunks.
  void column_sums(std::string_view name, std::int64_t rows, std::int64_t columns, std::int64_t reads) {
    over_rows(name, rows, columns, reads, 0).launches = 2;
  }
  // One that reads so many rows of an array of the compute type, and writes so many of another.
  void move_rows(std::string_view name, std::int64_t columns, std::int64_t read, std::int64_t written) {
    const std::int64_t e = bytes(value()) * columns;
    add(RowKernel{name, std::max(read, written), columns, read * e, written * e});
  }
  // One over indices of 4 bytes.
  void over_indices(std::string_view name, std::int64_t count, std::int64_t reads, std::int64_t writes,
                    std::int64_t launches = 1) {
    add(RowKernel{name, count, 1, 4 * reads * count, 4 * writes * count, launches});
  }

  // Of everything that is computed, on a GPU; a call of a library counts one.
  std::int64_t launches() const;

  // Of products and attention.
  double flops() const;

 private:
  DType value() const { return c.precision.compute; }
  DType sum() const { return c.precision.accumulate; }
  static std::int64_t bytes(DType type) { return static_cast<std::int64_t>(size_of(type)); }
  Product product_of(ProductOf of, std::int64_t rows, std::int64_t out, std::int64_t in) const;
  bool is_of_codes(const Product& product) const;
  ScaledProduct scaled_block(ProductOf of, std::int64_t rows, const MatrixSplit& w, bool codes) const;
  void add_codes(const ScaledProduct& p, std::int64_t numbers);
  // `measured`: the kernel that made the first operand has left its amaxes.
  void add_scaled(const ScaledProduct& p, bool measured);
  // The largest magnitudes of an operand, or of so many like it; of those that so many ranks share, and of the history.
  void add_amaxes(const ScaledOperand& x, std::int64_t matrices);
  void add_amaxes_of_ranks(Group group, int ranks, std::int64_t count);
  void add_history(ProductOf of, const ScaledProduct& p);

  void send_behind(Collective collective, std::int64_t columns) {
    sent_behind_ = segments.size();
    aside = true;
    send(Group::tp_behind, collective, S * columns, value());
    aside = false;
  }

  int joined_ = 0;  // products to come whose codes are there
  std::optional<std::size_t> sent_behind_;
};

}  // namespace forge
