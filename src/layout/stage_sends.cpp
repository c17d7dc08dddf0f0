#include "layout/stage_sends.hpp"

#include <algorithm>

#include "model/context_buffers.hpp"
#include "model/moe_buffers.hpp"

namespace forge {

namespace {

constexpr Collective all_gather = Collective::all_gather, reduce_scatter = Collective::reduce_scatter,
                     all_reduce = Collective::all_reduce, all_to_all = Collective::all_to_all;

// Writes the list of one layer.
class Sends {
 public:
  explicit Sends(const BufferContext& c) : c_(c), moe_(moe_shape(c)) {}

  std::vector<Sent> list;

  // Rows of the residual stream over tp; what the first gathered product of attention reads.
  void rows(Collective collective, std::int64_t times = 1) {
    add(Group::tp, collective, c_.stream_rows() * c_.spec.C(), c_.precision.compute, times);
  }
  void attention_inputs(Collective collective) {
    add(Group::tp, collective, c_.stream_rows() * c_.spec.attention_input_columns(), c_.precision.compute);
  }

  // Logits of all rows, a chunk at a time, and their gradient.
  void head() {
    rows(all_gather);
    for (std::int64_t begin = 0; begin < c_.microbatch.rows(); begin += c_.head_chunk_rows)
      add(Group::tp, all_gather, 3 * std::min(c_.head_chunk_rows, c_.microbatch.rows() - begin),
          c_.precision.accumulate);
    rows(reduce_scatter);
  }

  // `recomputes`: without the last products, which recomputation leaves out.
  void forward_of_block(std::int64_t layer, bool recomputes) {
    const bool moe = c_.spec.is_moe(layer);
    const bool feeds_forward = !recomputes || (moe && c_.spec.options.shared_expert_gate);
    attention_inputs(all_gather);
    rows(all_gather, products(layer));
    rows(reduce_scatter, 1 + (feeds_forward ? products(layer) : 0));
    append(context_sends_forward(c_));
    if (!moe) return;
    router();
    if (moe_.gathers) {
      gather_rows_of_group(moe_.chosen, DType::i32);
    } else if (!moe_.fixed) {
      add(Group::etp, all_gather, moe_.experts, DType::i64);
      add(Group::ep, all_gather, c_.etp * moe_.experts, DType::i64);
    }
    assignments_out(c_.spec.C(), c_.precision.compute);
    assignments_out(1, c_.precision.accumulate);
    if (!recomputes) assignments_back(c_.spec.C(), c_.precision.compute);
  }
  void backward_input_of_block(std::int64_t layer) {
    rows(all_gather, 1 + products(layer));
    attention_inputs(reduce_scatter);
    rows(reduce_scatter, products(layer));
    append(context_sends_backward(c_));
    if (!c_.spec.is_moe(layer)) return;
    assignments_out(c_.spec.C(), c_.precision.compute);
    assignments_back(c_.spec.C(), c_.precision.compute);
    assignments_back(1, c_.precision.accumulate);
  }
  void backward_weight_of_block(std::int64_t layer) {
    attention_inputs(all_gather);
    rows(all_gather, products(layer));
  }

 private:
  void add(Group group, Collective collective, std::int64_t count, DType type, std::int64_t times = 1) {
    if (times > 0) list.push_back({group, collective, count, type, times});
  }
  void append(const std::vector<Sent>& more) { list.insert(list.end(), more.begin(), more.end()); }

  // Feed-forward products that tp splits: the experts' are not among them.
  std::int64_t products(std::int64_t layer) const { return c_.spec.is_moe(layer) && c_.spec.Fs() == 0 ? 0 : 1; }

  void router() {
    const ModelDeck& o = c_.spec.options;
    if (o.auxiliary_loss_coefficient > 0)
      for (const Group group : {Group::tp, Group::cp})
        add(group, all_reduce, balance_scopes(c_) * (2 * moe_.experts + 1), DType::f64);
    if (o.capacity_factor == 0 || moe_.fixed) return;
    for (const DType type : {DType::i32, c_.precision.accumulate}) {
      add(Group::tp, all_gather, moe_.rows * moe_.chosen, type);
      add(Group::cp, all_gather, c_.tp * moe_.rows * moe_.chosen, type);
    }
  }

  // A round of dispatch: rows (`columns` wide) of assignments to their experts, and back; weights are 1 wide.
  void assignments_out(std::int64_t columns, DType type) {
    if (moe_.gathers) return gather_rows_of_group(width(columns), type);
    add(Group::ep, all_to_all, moe_.places * columns / c_.ep, type);
    add(Group::etp, all_to_all, moe_.places * columns, type);
  }
  void assignments_back(std::int64_t columns, DType type) {
    if (moe_.gathers) {
      add(Group::ep, reduce_scatter, c_.etp * c_.stream_rows() * width(columns), type);
      return add(Group::etp, reduce_scatter, c_.stream_rows() * width(columns), type);
    }
    add(Group::ep, all_to_all, moe_.places * columns / c_.ep, type);
    add(Group::etp, Collective::send, moe_.places * columns, type, c_.etp - 1);
  }
  std::int64_t width(std::int64_t columns) const { return columns == 1 ? moe_.chosen : columns; }
  void gather_rows_of_group(std::int64_t columns, DType type) {
    add(Group::etp, all_gather, c_.stream_rows() * columns, type);
    add(Group::ep, all_gather, c_.etp * c_.stream_rows() * columns, type);
  }

  const BufferContext& c_;
  MoeShape moe_;
};

}  // namespace

std::vector<Sent> sends_of(const BufferContext& c, const StageLayer& layer, Pass pass, bool recompute) {
  Sends sends(c);
  switch (layer.kind) {
    case LayerKind::block:
      if (pass == Pass::forward || (recompute && c.recompute == Recompute::full))
        sends.forward_of_block(layer.number, recompute);
      else if (pass == Pass::backward_input && !recompute)
        sends.backward_input_of_block(layer.number);
      else if (pass == Pass::backward_weight)
        sends.backward_weight_of_block(layer.number);
      break;
    case LayerKind::embedding:
      sends.rows(pass == Pass::forward ? reduce_scatter : all_gather);
      break;
    case LayerKind::mtp_input:  // the embedding's rows; its gradient is taken in B
      if (pass == Pass::forward) sends.rows(reduce_scatter);
      if (pass == Pass::backward_input && !recompute) sends.rows(all_gather);
      break;
    case LayerKind::head:
      sends.head();
      break;
    default:
      break;
  }
  return sends.list;
}

}  // namespace forge
