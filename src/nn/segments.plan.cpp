#include "nn/segments.plan.hpp"

#include <algorithm>

namespace forge {

namespace {

// Σ over queries q < end of the number of keys in [begin, begin + length) that are at most q.
double keys_up_to(std::int64_t end, const PositionRun& keys) {
  const auto y = static_cast<double>(std::max<std::int64_t>(end - keys.begin, 0)), n = static_cast<double>(keys.length);
  return y <= n ? y * (y + 1) / 2 : n * (n + 1) / 2 + (y - n) * n;
}

// Keys at most q, less those at most q − window.
double pairs_of(const PositionRun& q, const PositionRun& k, std::int64_t window) {
  const auto seen = [&](std::int64_t distance) {
    return keys_up_to(q.begin + q.length - distance, k) - keys_up_to(q.begin - distance, k);
  };
  return seen(0) - (window > 0 ? seen(window) : 0);
}

bool sees(const PositionRun& q, const PositionRun& k, std::int64_t window) {
  const std::int64_t nearest = q.begin - (k.begin + k.length - 1), last = q.begin + q.length - 1;
  return k.begin <= last && (window == 0 || nearest < window);
}

std::int64_t rows_of(const PositionRuns& runs) {
  std::int64_t rows = 0;
  for (const PositionRun& run : runs) rows += run.length;
  return rows;
}

// Rows [i · size, (i + 1) · size) of the runs, tile by tile.
std::vector<PositionRuns> cut(const PositionRuns& runs, std::int64_t size) {
  std::vector<PositionRuns> tiles;
  std::int64_t row = 0;
  for (PositionRun run : runs)
    while (run.length > 0) {
      if (row % size == 0) tiles.emplace_back();
      const std::int64_t here = std::min(run.length, size - row % size);
      tiles.back().push_back({run.begin, here});
      run = {run.begin + here, run.length - here};
      row += here;
    }
  return tiles;
}

// Groups of which this rank has lines.
std::int64_t groups_here(const ScaleLines& lines) {
  std::int64_t count = 0;
  for (std::int64_t g = 0; g < lines.count; ++g) count += lines.lines_of(g).end > lines.lines_of(g).begin;
  return count;
}

// Of both operands.
std::int64_t numbers_of(const ScaledProduct& p) {
  return p.a.rows * p.a.columns + p.b.rows * p.b.columns;
}

template <class List>
double sum_of_flops(const List& list) {
  double sum = 0;
  for (const auto& operation : list) sum += operation.flops();
  return sum;
}

}  // namespace

PositionRuns position_runs(std::int64_t sequence_tokens, int cp, int cp_rank) {
  if (cp == 1) return {{0, sequence_tokens}};
  const std::int64_t chunks = 2 * cp, length = sequence_tokens / chunks;
  return {{cp_rank * length, length}, {(chunks - 1 - cp_rank) * length, length}};
}

std::int64_t AttentionProduct::query_rows() const {
  return rows_of(queries);
}
std::int64_t AttentionProduct::key_rows() const {
  return rows_of(keys);
}

double AttentionProduct::pairs() const {
  double sum = 0;
  for (const PositionRun& q : queries)
    for (const PositionRun& k : keys) sum += pairs_of(q, k, window);
  return sum;
}

std::int64_t AttentionProduct::tiles(std::int64_t query_rows, std::int64_t key_rows) const {
  const auto key_tiles = cut(keys, key_rows);
  const auto visible = [&](const PositionRuns& of_queries, const PositionRuns& of_keys) {
    return std::any_of(of_queries.begin(), of_queries.end(), [&](const PositionRun& q) {
      return std::any_of(of_keys.begin(), of_keys.end(), [&](const PositionRun& k) { return sees(q, k, window); });
    });
  };
  std::int64_t count = 0;
  for (const PositionRuns& of_queries : cut(queries, query_rows))
    for (const PositionRuns& of_keys : key_tiles) count += visible(of_queries, of_keys);
  return count;
}

double AttentionProduct::flops() const {
  const auto D = static_cast<double>(head_size), Dv = static_cast<double>(value_size);
  return static_cast<double>(sequences * heads) * pairs() * 2 * (backward ? 3 * D + 2 * Dv : D + Dv);
}

Product Segments::product_of(ProductOf of, std::int64_t rows, std::int64_t out, std::int64_t in) const {
  if (of == ProductOf::weight_gradient) return {out, in, rows, value(), sum(), false, of};
  const bool input = of == ProductOf::input_gradient;
  return {rows, input ? in : out, input ? out : in, value(), value(), false, of};
}

bool Segments::is_of_codes(const Product& product) const {
  return rounds && rounds_product(c.rounding, product.of) && c.rounding.codes &&
         cublaslt_takes(code_scaling(c.rounding.recipe), product.m, product.n);
}

ScaledProduct Segments::scaled_block(ProductOf of, std::int64_t rows, const MatrixSplit& w, bool codes) const {
  ScaledProduct p = scaled_product(c, of, rows, w, 0);
  p.coded = coded && of != ProductOf::weight_gradient;
  set_known(p, c, of, w.product, recomputes);
  if (codes) add_code_bytes(p, c, of, rows, w);
  return p;
}

// Where cuBLASLt multiplies codes (Gemm::code_product): a product for each run with the same scales; what `current`
// sums over sequences, their products add to C one after the other.
void Segments::block_linear(ProductOf of, std::int64_t rows, const MatrixSplit& w, bool measured, bool aligned) {
  Product product = product_of(of, rows, w.rows.count(), w.columns.count());
  if (!rounds || !rounds_product(c.rounding, of)) {
    add(product);
    return;
  }
  product.rounded = true;
  product.codes = aligned && is_of_codes(product);
  const ScaledProduct p = scaled_block(of, rows, w, product.codes);
  if (joined_ > 0) {
    --joined_;
  } else {
    if (c.rounding.has_history()) add_history(of, p);
    add_scaled(p, measured && takes_amaxes_of_rows(c.rounding));
  }
  add(product);
  if (!product.codes || code_scaling(c.rounding.recipe) != CodeScaling::tensor) return;
  const std::int64_t more = groups_here(p.a.by_row) - 1;
  const std::int64_t sums = of == ProductOf::weight_gradient ? more * product.m * product.n * bytes(sum()) : 0;
  if (more > 0) add(RowKernel{"sums_of_runs", product.m, product.n, sums, sums, more});
}

// Codes of second operands stand side by side and, in gradients of weights, those of first ones.
bool Segments::join_codes(ProductOf of, std::int64_t rows, const MatrixSplit& w, const MatrixSplit& next) {
  const auto taken = [&](const MatrixSplit& m) {
    return is_of_codes(product_of(of, rows, m.rows.count(), m.columns.count()));
  };
  if (!joins_codes(c.rounding, of) || !taken(w) || !taken(next)) return false;
  const ScaledProduct first = scaled_block(of, rows, w, true);
  ScaledProduct second = scaled_block(of, rows, next, true);
  const bool gradients = of == ProductOf::weight_gradient;
  const std::int64_t made = gradients ? 0 : second.a.rows * second.a.columns;
  if (c.rounding.has_history())
    for (const ScaledProduct* p : {&first, &std::as_const(second)}) add_history(of, *p);
  if (gradients) second.a_codes += first.a_codes;
  second.b_codes += first.b_codes;
  second.factors += first.factors;
  scaled.push_back(first);
  scaled.push_back(second);
  add_codes(second, numbers_of(first) + numbers_of(second) - made);
  joined_ = 2;
  return true;
}

void Segments::add_codes(const ScaledProduct& p, std::int64_t numbers) {
  add(RowKernel{rounding_kernels::encode, p.a.rows, p.a.columns, numbers * bytes(value()),
                numbers + p.factors * bytes(DType::f32)});
}

void Segments::expert_linear(ProductOf of, std::int64_t rows, const MatrixSplit& w) {
  const bool rounded = rounds && rounds_experts(c.rounding, of);
  if (rounded) {
    ScaledProduct p = scaled_experts(c, of, rows, w, 0);
    p.coded = coded_experts;
    add_scaled(p, false);
  }
  expert_product(of, rows, w.rows.count(), w.columns.count(), rounded);
}

void Segments::expert_product(ProductOf of, std::int64_t rows, std::int64_t out, std::int64_t in, bool rounded) {
  const bool sums = of == ProductOf::weight_gradient, input = of == ProductOf::input_gradient;
  const bool described = c.cutlass && in % 8 == 0 && out % 8 == 0;  // else not by CUTLASS
  add(ExpertProduct{sums, spec.E() / c.ep, rows, input ? in : out, input ? out : in, value(), sums ? sum() : value(),
                    rounded, c.grouped, of, described});
}

void Segments::add_amaxes(const ScaledOperand& x, std::int64_t matrices) {
  over_rows(rounding_kernels::amax, matrices * x.rows, x.columns, 1, 0);
}

void Segments::add_amaxes_of_ranks(Group group, int ranks, std::int64_t count) {
  if (count == 0) return;
  const std::int64_t each = count * bytes(DType::f32);
  send(group, Collective::all_gather, count, DType::f32);
  add(RowKernel{rounding_kernels::amax_of_ranks, 1, count, ranks * each, each});
}

// What is rounded adds its amax to the step's there; of a weight that was gathered as codes, it is known.
void Segments::add_history(ProductOf of, const ScaledProduct& p) {
  const std::int64_t entry = bytes(DType::f32);
  if (!recomputes && p.coded && recorded_operands(of) > 1) add(RowKernel{rounding_kernels::raise, 1, 1, entry, entry});
}

void Segments::add_scaled(const ScaledProduct& p, bool measured) {
  scaled.push_back(p);
  if (p.experts > 0 || !c.rounding.has_history()) {
    if (p.takes_a() && !measured) add_amaxes(p.a, 1);
    if (p.takes_b()) add_amaxes(p.b, p.matrices());
    add_amaxes_of_ranks(p.splitters(), p.experts > 0 ? c.etp : c.tp, p.over_tp());
    add_amaxes_of_ranks(Group::cp, c.microbatch.cp, p.over_cp());
  }
  if (p.b_codes > 0) return add_codes(p, numbers_of(p));
  over_rows(rounding_kernels::round, p.a.rows, p.a.columns, 1, 1);
  if (!p.coded) over_rows(rounding_kernels::round, p.matrices() * p.b.rows, p.b.columns, 1, 1);
}

double Segments::flops() const {
  return sum_of_flops(all<Product>()) + sum_of_flops(all<ExpertProduct>()) + sum_of_flops(all<AttentionProduct>());
}

std::int64_t Segments::launches() const {
  std::int64_t count = std::ssize(all<Product>());
  for (const ExpertProduct& p : all<ExpertProduct>()) count += p.launches();
  for (const AttentionProduct& a : all<AttentionProduct>()) count += a.launches();
  for (const RowKernel& r : all<RowKernel>()) count += r.launches;
  return count;
}

}  // namespace forge
