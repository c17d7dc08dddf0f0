#include "operation_record.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "plan/placement.hpp"
#include "plan/task_segments.hpp"

namespace forge::test {

namespace {

std::string text_of(const Product& p) {
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + ", types " +
         std::to_string(static_cast<int>(p.operands)) + " to " + std::to_string(static_cast<int>(p.result)) +
         (p.rounded ? ", in fp8" : "") + (p.codes ? ", of codes" : "");
}
std::string text_of(const ExpertProduct& p) {
  return (p.sums ? "sums" : "rows") + std::string(" of ") + std::to_string(p.experts) + " experts, " +
         std::to_string(p.rows) + " rows, " + std::to_string(p.n) + " x " + std::to_string(p.k) +
         (p.rounded ? ", in fp8" : "");
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

// Where two lists differ first.
std::string difference(const char* what, const std::vector<std::string>& listed, const std::vector<std::string>& ran) {
  for (std::size_t i = 0; i < std::max(listed.size(), ran.size()); ++i) {
    const std::string a = i < listed.size() ? listed[i] : "nothing", b = i < ran.size() ? ran[i] : "nothing";
    if (a != b) return what + (" " + std::to_string(i)) + ": " + a + " is listed, " + b + " ran";
  }
  return "";
}

bool of_experts(Group group) {
  return group == Group::ep || group == Group::etp || group == Group::ep_rail || group == Group::ep_node;
}
std::string text_of(Group group, Collective collective) {
  return std::string(name_of(group)) + " " + std::string(name_of(collective));
}
std::string text_of(bool behind) {
  return behind ? ", behind the compute stream" : "";
}

constexpr std::array by_router{"permute_rows", "unpermute_rows", "permute_weights", "unpermute_weights",
                               "weighted_swiglu_forward", "weighted_swiglu_backward", "expert_bias_forward",
                               "expert_bias_backward", "expert_bias_weights", "moe_sort", "capacity_drop",
                               "received_order", "fill_counts", "node_choices", "record_entries", "node_counts",
                               "sum_entries", "permute_codes",
                               // … also of others
                               "add", "copy_rows"};
constexpr std::array of_one_rank{"add_counts", "router_balance_loss"};  // of a group
template <class Names>
bool has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<Group> SegmentLines::groups() const {
  std::vector<Group> list{Group::tp, Group::tp_behind, Group::cp, Group::cp_inner, Group::cp_outer};
  if (alike_) list.insert(list.end(), {Group::ep, Group::etp, Group::ep_rail, Group::ep_node});
  return list;
}

void SegmentLines::add(const Product& product) {
  add_line("product " + text_of(product));
}

void SegmentLines::add(const ExpertProduct& product) {
  if (alike_) add_line("experts' product, " + text_of(product));
}

void SegmentLines::add(const AttentionProduct& heads, std::int64_t query_rows, std::int64_t key_rows, double pairs) {
  add_line("attention, " + std::string(heads.backward ? "backward of " : "") + std::to_string(heads.sequences) +
           " sequences, " + std::to_string(query_rows) + " queries, " + std::to_string(key_rows) + " keys, heads " +
           std::to_string(heads.heads) + " of " + std::to_string(heads.key_heads) + ", sizes " +
           std::to_string(heads.head_size) + ", " + std::to_string(heads.value_size) + ", window " +
           std::to_string(heads.window) + (alike_ ? ", " + std::to_string(pairs) + " pairs" : ""));
}

void SegmentLines::add(Group group, Collective collective, std::int64_t calls, std::int64_t bytes) {
  if (!alike_ && of_experts(group)) return;
  auto& [all_calls, all_bytes] = sent_[{group, collective}];
  all_calls += calls;
  all_bytes += bytes;
}

// Kernels of FP8, which note nothing; those that the router decides on; those that only one rank runs; copies, where
// some are of states that travel between stages.
bool SegmentLines::leaves_out(std::string_view name) const {
  if (name.starts_with("fp8_") || name == "sums_of_runs" || has(of_one_rank, name)) return true;
  if (replays_ && name == "router_weights") return true;
  if (!alike_ && setup_.spec.E() > 0 && has(by_router, name)) return true;
  if (!alike_ && setup_.mesh.ep_nodes > 1 && name == "convert_rows") return true;
  if (setup_.buffers.rounding.kv_copies > 1 && name == "add") return true;
  if (setup_.mesh.pp > 1 && name == "copy_rows") return true;
  return name == "embedding_forward" && !setup_.spec.rope() && setup_.share.tp_rank > 0;
}

void SegmentLines::add(std::string_view name, std::int64_t read, std::int64_t written, bool behind) {
  if (leaves_out(name)) return;
  const std::string named = std::string(name) + text_of(behind);
  if (named != rows_ || !sent_.empty()) {
    end_sent();
    rows_ = named;
  }
  read_ += read;
  written_ += written;
}

void SegmentLines::end_rows() {
  if (!rows_.empty())
    lines_.push_back(rows_ + ": " + std::to_string(read_) + " B read, " + std::to_string(written_) + " B written");
  rows_.clear();
  read_ = written_ = 0;
}

void SegmentLines::end_sent() {
  end_rows();
  for (const auto& [kind, sent] : sent_)
    lines_.push_back(text_of(kind.first, kind.second) + ": " + std::to_string(sent.first) + " calls, " +
                     std::to_string(sent.second) + " B");
  sent_.clear();
}

void SegmentLines::add_line(const std::string& text) {
  end_sent();
  lines_.push_back(text);
}

void SegmentLines::append(SegmentLines& pass) {
  end_sent();
  pass.end_sent();
  lines_.insert(lines_.end(), pass.lines_.begin(), pass.lines_.end());
  pass.lines_.clear();
}

std::vector<std::string> SegmentLines::lines() {
  add_line("the end");
  return std::move(lines_);
}

OperationRecord::OperationRecord(Mesh& mesh, const Stream& compute, SegmentLines lines)
    : mesh_(mesh), compute_(compute), empty_(std::move(lines)) {
  for (const Group group : lines_.groups()) counted_[group] = mesh.of(group).traffic();
}

// Collectives since the last time.
void OperationRecord::count_sent() {
  for (auto& [group, before] : counted_) {
    const Traffic& now = mesh_.of(group).traffic();
    for (int c = 0; c < collective_count; ++c)
      if (const std::int64_t calls = now.calls[to_size(c)] - before.calls[to_size(c)]; calls > 0)
        current().add(group, static_cast<Collective>(c), calls, now.bytes[to_size(c)] - before.bytes[to_size(c)]);
    before = now;
  }
}

void OperationRecord::product(const Product& product) {
  count_sent();
  current().add(product);
}

void OperationRecord::experts(const ExpertProduct& product) {
  count_sent();
  current().add(product);
}

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
  count_sent();
  current().add(heads, shape.query_rows, shape.key_rows, pairs);
}

void OperationRecord::rows(const Stream& stream, std::string_view name, std::int64_t read, std::int64_t written) {
  count_sent();
  current().add(name, read, written, &stream != &compute_);
}

// Lists have the passes of a pair one behind the other.
void OperationRecord::turn(int track) {
  count_sent();
  track_ = track;
  lines_.cut();
  if (track >= 0) return;
  for (SegmentLines& pass : of_tracks_) lines_.append(pass);
}

std::vector<std::string> OperationRecord::lines() {
  count_sent();
  return lines_.lines();
}

std::string operations_problem(const RunSetup& setup, OperationRecord& record,
                               const std::vector<Timeline::Span>& spans) {
  const GroupSizes sizes = group_sizes(setup.spec, setup.mesh, setup.share);
  SegmentLines listed = record.empty();
  const std::vector<Group> groups = listed.groups();
  std::vector<std::string> order, ran_order;
  bool behind = false;
  const auto add = [&]<class S>(const S& segment) {
    if constexpr (std::is_same_v<S, AttentionProduct>) {
      const double pairs = segment.pairs() * static_cast<double>(segment.sequences);
      listed.add(segment, segment.query_rows(), segment.key_rows(), pairs);
    } else if constexpr (std::is_same_v<S, Sent>) {
      if (sizes[to_size(segment.group)] == 1) return;
      listed.add(segment.group, segment.collective, segment.times, bytes_of(segment, sizes));
      if (listed.alike() || !of_experts(segment.group))
        order.push_back(text_of(segment.group, segment.collective) + text_of(behind));
    } else if constexpr (std::is_same_v<S, RowKernel>) {
      listed.add(segment.name, segment.read_bytes, segment.written_bytes, behind);
    } else {
      listed.add(segment);
    }
  };
  int track = -1;
  for (const Task& task : step_tasks(setup.share, setup.schedule_of(1), setup.buffers.recompute)) {
    if (std::exchange(track, task.track) != task.track) listed.cut();
    const Segments list = segments_of(setup.buffers, setup.share, task);
    for (std::size_t i = 0; i < list.segments.size(); ++i) {
      behind = list.behind[i];
      std::visit(add, list.segments[i]);
    }
  }
  for (const Timeline::Span& span : spans)
    for (const Group group : groups)
      if (!span.collective.empty() && span.group == name_of(group))
        ran_order.push_back(std::string(span.group) + " " + std::string(span.collective) + text_of(span.behind));
  const std::string problem = difference("segment", listed.lines(), record.lines());
  if (!problem.empty() || setup.deck.train.overlap == Overlap::pairs) return problem;
  return difference("collective", order, ran_order);
}

}  // namespace forge::test
