#pragma once

#include <set>
#include <string>
#include <vector>

#include "nn/context.hpp"
#include "plan/setup.hpp"

namespace forge::test {

// What a rank computes in a step, as it runs.
class OperationRecord : public OperationTape {
 public:
  void product(const Product& product) override { products.push_back(product); }
  void experts(const ExpertProduct& product) override { expert_products.push_back(product); }
  void scales(Stream& stream, View<const float, 1> amax) override;
  void attention(Stream& stream, const AttentionShape& shape, const AttentionMask& mask,
                 const AttentionProduct& heads) override;

  struct Attention {
    AttentionProduct heads;
    std::int64_t query_rows, key_rows;
    double pairs;  // of all sequences, counted one by one; documents cut them, too
  };
  std::vector<Product> products;
  std::vector<ExpertProduct> expert_products;
  std::vector<Attention> attentions;
  std::set<float> amaxes;  // of operands in FP8, each once
};

// "" where the record is the list of the rank's tasks: every product, its sizes and types, in the same order;
// attention's sizes. `alike`: the router loads all experts alike, in one round, and no document ends: then rows of
// experts and pairs, too.
std::string operations_problem(const RunSetup& setup, const OperationRecord& record, bool alike);

}  // namespace forge::test
