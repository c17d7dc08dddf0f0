#include "checkpoint/new_rows.hpp"

#include <algorithm>

namespace forge {

namespace {

// Adds rows (n, C) to sums (C): each column by one thread, from the first row to the last.
void add_rows(std::span<const double> rows, std::span<double> sums, int threads) {
  constexpr std::int64_t block = 64;
  const std::int64_t C = std::ssize(sums), n = std::ssize(rows) / C;
#pragma omp parallel for num_threads(threads)
  for (std::int64_t begin = 0; begin < C; begin += block)
    for (std::int64_t r = 0; r < n; ++r)
      for (std::int64_t c = begin; c < std::min(begin + block, C); ++c) sums[to_size(c)] += rows[to_size(r * C + c)];
}

}  // namespace

NewRowValues::NewRowValues(const ModelDeck& model, const Parameter& table, std::uint64_t seed, const Read& read,
                           int threads)
    : columns_(table.shape[1]),
      noise_(model.new_rows == NewRows::noise),
      numbers_(initial_values(seed, table)),
      means_(to_size(columns_), 0) {
  constexpr std::int64_t most = std::int64_t{1} << 21;  // elements of a part
  const std::int64_t rows = model.base_vocabulary, rows_of_part = std::max<std::int64_t>(1, most / columns_);
  std::vector<double> part;
  for (std::int64_t at = 0; at < rows; at += rows_of_part) {
    part.resize(to_size(std::min(rows_of_part, rows - at) * columns_));
    read(at * columns_, part);
    add_rows(part, means_, threads);
  }
  for (double& mean : means_) mean /= static_cast<double>(rows);
}

}  // namespace forge
