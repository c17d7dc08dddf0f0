#include "operation_record.hpp"

#include <algorithm>
#include <sstream>

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "plan/task_segments.hpp"

namespace forge::test {

namespace {

std::string text_of(const Product& p) {
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + ", types " +
         std::to_string(static_cast<int>(p.operands)) + " to " + std::to_string(static_cast<int>(p.result)) +
         (p.fp8 ? ", in fp8" : "") + (p.codes ? ", of codes" : "");
}
std::string text_of(const ExpertProduct& p) {
  return (p.sums ? "sums" : "rows") + std::string(" of ") + std::to_string(p.experts) + " experts, " +
         std::to_string(p.rows) + " rows, " + std::to_string(p.n) + " x " + std::to_string(p.k) +
         (p.fp8 ? ", in fp8" : "");
}
std::string text_of(const OperationRecord::Attention& a) {
  const AttentionProduct& h = a.heads;
  return (h.backward ? "backward of " : "") + std::to_string(h.sequences) + " sequences, " +
         std::to_string(a.query_rows) + " queries, " + std::to_string(a.key_rows) + " keys, heads " +
         std::to_string(h.heads) + " of " + std::to_string(h.key_heads) + ", sizes " + std::to_string(h.head_size) +
         ", " + std::to_string(h.value_size) + ", window " + std::to_string(h.window) + ", " + std::to_string(a.pairs) +
         " pairs";
}

using Numbers = std::vector<std::int32_t>;

// A device's array, as the stream leaves it.
Numbers on_host(Stream& stream, const View<const std::int32_t, 1>& values) {
  Numbers host(to_size(values.size()));
  if (!host.empty()) copy_to_host(stream, host.data(), values.data, host.size() * sizeof(std::int32_t));
  stream.synchronize();
  return host;
}

// Positions and documents of the rows of queries and keys.
struct HostMask {
  Numbers position_q, position_k, document_q, document_k;
  std::int64_t window;

  // Whether query i sees key j.
  bool sees(std::size_t i, std::size_t j) const {
    const std::int64_t distance = position_q[i] - position_k[j];
    const bool same_document = document_q.empty() || document_q[i] == document_k[j];
    return distance >= 0 && (window == 0 || distance < window) && same_document;
  }
};

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

void OperationRecord::scales(Stream& stream, View<const float, 1> amax) {
  std::vector<float> host(to_size(amax.size()));
  copy_to_host(stream, host.data(), amax.data, host.size() * sizeof(float));
  stream.synchronize();
  amaxes.insert(host.begin(), host.end());
}

void OperationRecord::attention(Stream& stream, const AttentionShape& shape, const AttentionMask& mask,
                                const AttentionProduct& heads) {
  const HostMask host{on_host(stream, mask.position_q), on_host(stream, mask.position_k),
                      on_host(stream, mask.document_q), on_host(stream, mask.document_k), mask.window};
  double pairs = 0;
  for (std::int64_t b = 0; b < shape.sequences; ++b)
    for (std::int64_t i = b * shape.query_rows; i < (b + 1) * shape.query_rows; ++i)
      for (std::int64_t j = b * shape.key_rows; j < (b + 1) * shape.key_rows; ++j)
        pairs += host.sees(to_size(i), to_size(j));
  attentions.push_back({heads, shape.query_rows, shape.key_rows, pairs});
}

std::string operations_problem(const RunSetup& setup, const OperationRecord& record, bool alike) {
  std::vector<Product> products;
  std::vector<ExpertProduct> experts, ran_experts = record.expert_products;
  std::vector<OperationRecord::Attention> attentions, ran_attentions = record.attentions;
  for (const Task& task : step_tasks(setup.share, setup.schedule_of(1), setup.buffers.recompute)) {
    const Segments list = segments_of(setup.buffers, setup.share, task);
    for (const Product& p : list.all<Product>()) products.push_back(p);
    for (const ExpertProduct& p : list.all<ExpertProduct>()) experts.push_back(p);
    for (const AttentionProduct& a : list.all<AttentionProduct>())
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
