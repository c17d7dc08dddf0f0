#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/parameters.hpp"

namespace forge {

// Rows of a table W (V, C), the embedding or the head, behind the V0 that the files have (model.new_rows), the same on
// any layout:
//
//     m[c] = (W[0, c] + … + W[V0 - 1, c]) / V0       summed in this order in fp64
//     W[r, c] = m[c]                                  mean
//     W[r, c] = m[c] + z(r C + c)                     noise: z the table's initial values (core/normal.hpp)
//
// Means: Hewitt 2021, "Initializing New Word Embeddings for Pretrained Language Models".
class NewRowValues {
 public:
  // Elements of the table in the files from `first` on, row-major.
  using Read = std::function<void(std::int64_t first, std::span<double> to)>;
  // Reads all rows that the files have, a part at a time. `table`: with the rows behind them.
  NewRowValues(const ModelDeck& model, const Parameter& table, std::uint64_t seed, const Read& read, int threads);

  // The value of an element of the table, in one of those rows.
  double operator()(std::int64_t element) const {
    const double mean = means_[to_size(element % columns_)];
    return noise_ ? mean + numbers_(element) : mean;
  }

 private:
  std::int64_t columns_;
  bool noise_;
  NormalNumbers numbers_;
  std::vector<double> means_;  // (C)
};

}  // namespace forge
