#include "operation_record.hpp"

#include <algorithm>
#include <sstream>

#include "plan/operations.hpp"

namespace forge::test {

namespace {

std::string text_of(const Product& p) {
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + ", types " +
         std::to_string(static_cast<int>(p.operands)) + " to " + std::to_string(static_cast<int>(p.result));
}
std::string text_of(const ExpertProduct& p) {
  return (p.sums ? "sums" : "rows") + std::string(" of ") + std::to_string(p.experts) + " experts, " +
         std::to_string(p.rows) + " rows, " + std::to_string(p.n) + " x " + std::to_string(p.k);
}
std::string text_of(const OperationRecord::Attention& a) {
  const AttentionProduct& h = a.heads;
  return (h.backward ? "backward of " : "") + std::to_string(h.sequences) + " sequences, " +
         std::to_string(a.query_rows) + " queries, " + std::to_string(a.key_rows) + " keys, heads " +
         std::to_string(h.heads) + " of " + std::to_string(h.key_heads) + ", sizes " + std::to_string(h.head_size) +
         ", " + std::to_string(h.value_size) + ", window " + std::to_string(h.window) + ", " + std::to_string(a.pairs) +
         " pairs";
}

// Whether query i sees key j.
bool sees(const AttentionMask& m, std::int64_t i, std::int64_t j) {
  const std::int64_t distance = m.position_q[i] - m.position_k[j];
  const bool same_document = m.document_q.empty() || m.document_q[i] == m.document_k[j];
  return distance >= 0 && (m.window == 0 || distance < m.window) && same_document;
}

template <class List>
std::string difference(const char* what, const List& listed, const List& ran) {
  std::ostringstream text;
  for (std::size_t i = 0; i < std::max(listed.size(), ran.size()) && text.tellp() == 0; ++i) {
    const std::string a = i < listed.size() ? text_of(listed[i]) : "nothing",
                      b = i < ran.size() ? text_of(ran[i]) : "nothing";
    if (a != b) text << what << " " << i << ": " << a << " is listed, " << b << " ran";
  }
  return text.str();
}

}  // namespace

void OperationRecord::attention(const AttentionShape& shape, const AttentionMask& mask, const AttentionProduct& heads) {
  double pairs = 0;
  for (std::int64_t b = 0; b < shape.sequences; ++b)
    for (std::int64_t i = b * shape.query_rows; i < (b + 1) * shape.query_rows; ++i)
      for (std::int64_t j = b * shape.key_rows; j < (b + 1) * shape.key_rows; ++j) pairs += sees(mask, i, j);
  attentions.push_back({heads, shape.query_rows, shape.key_rows, pairs});
}

std::string operations_problem(const RunSetup& setup, const OperationRecord& record, bool alike) {
  std::vector<Product> products;
  std::vector<ExpertProduct> experts, ran_experts = record.expert_products;
  std::vector<OperationRecord::Attention> attentions, ran_attentions = record.attentions;
  for (const Task& task : step_tasks(setup.share, setup.schedule, setup.buffers.recompute)) {
    const Operations o = operations_of(setup.buffers, setup.share, task);
    products.insert(products.end(), o.products.begin(), o.products.end());
    experts.insert(experts.end(), o.expert_products.begin(), o.expert_products.end());
    for (const AttentionProduct& a : o.attention)
      attentions.push_back({a, a.query_rows(), a.key_rows(), a.pairs() * static_cast<double>(a.sequences)});
  }
  if (!alike) {
    for (auto* list : {&attentions, &ran_attentions})
      for (OperationRecord::Attention& a : *list) a.pairs = 0;
    experts.clear();
    ran_experts.clear();
  }
  for (const std::string& problem :
       {difference("product", products, record.products), difference("experts' product", experts, ran_experts),
        difference("attention", attentions, ran_attentions)})
    if (!problem.empty()) return problem;
  return "";
}

}  // namespace forge::test
