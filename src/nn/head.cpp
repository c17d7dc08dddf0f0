#include "nn/head.hpp"

#include "core/to_size.hpp"
#include "kernels/rows/place_rows.hpp"
#include "nn/norm.hpp"
#include "nn/rows.hpp"

namespace forge {

template <class T>
void StateNorm<T>::forward(View<T, 2> state) const {
  norm_forward<T>(ctx, x, w.norm.weight, w.norm.bias, b, state, w.rms_norm);
}

template <class T>
void StateNorm<T>::backward_input(View<const T, 2> d_state, View<T, 2> dx) const {
  Frame frame(ctx.arena);
  const auto s = workspace<NormScratch<T>>(ctx);
  norm_backward<T>(ctx, x, w.norm.weight, b, g.norm.weight, g.norm.bias, d_state, {}, dx, s.rows, w.rms_norm);
}

// Loss of rows [begin, end), whose logits have their soft cap, and its gradient by those in the place of d_logits.
template <class T>
void Head<T>::chunk_loss(const HeadScratch<T>& s, std::int64_t begin, std::int64_t end, LossScale scale,
                         View<T, 2> d_logits, const RowWeights& weights) const {
  using A = acc_t<T>;
  const int tp = ctx.groups.tp_size();
  const std::int64_t rows = end - begin;
  const View<A, 2> logits = s.logits.slice(0, rows);
  const View<A, 1> loss = s.loss.slice(0, rows), z = s.z.slice(0, rows);
  const View<const std::int32_t, 1> wanted = labels.slice(begin, end);
  if (tp == 1)
    return cross_entropy<T>(ctx.stream, logits, wanted, scale.per_label, scale.z_coefficient, loss, z, d_logits,
                            weights);
  const View<A, 2> all = s.statistics.slice(0, tp * rows), own = own_rows(ctx.groups, all);
  cross_entropy_statistics<T>(ctx.stream, logits, vocabulary.rows, wanted, vocabulary.first, own);
  ctx.groups.tp->all_gather(ctx.stream, View<const A, 2>(own), all);
  cross_entropy_from_statistics<T>(ctx.stream, logits, vocabulary.rows, wanted, vocabulary.first, all, tp,
                                   scale.per_label, scale.z_coefficient, loss, z, d_logits, weights);
}

// Of the same rows, behind their loss.
template <class T>
void Head<T>::chunk_scores(const HeadScratch<T>& s, std::int64_t begin, std::int64_t end) const {
  using A = acc_t<T>;
  const int tp = ctx.groups.tp_size();
  const std::int64_t rows = end - begin;
  const View<const A, 2> statistics = tp == 1 ? View<const A, 2>() : View<const A, 2>(s.statistics.slice(0, tp * rows));
  score_rows<A>(ctx.stream, s.logits.slice(0, rows), vocabulary.rows, labels.slice(begin, end), vocabulary.first,
                statistics, s.loss.slice(0, rows), scores.slice(begin, end));
}

template <class T>
View<acc_t<T>, 2> Head<T>::chunk_logits(const HeadScratch<T>& s, View<const T, 2> n, std::int64_t begin,
                                        std::int64_t end) const {
  const View<acc_t<T>, 2> logits = s.logits.slice(0, end - begin);
  linear_forward<T, acc_t<T>>(ctx, n.slice(begin, end), w, {}, logits);
  if (const double cap = ctx.spec().options.logit_soft_cap; cap > 0) soft_cap<acc_t<T>>(ctx.stream, logits, cap);
  return logits;
}

// The first of two runs: text_losses(2b) = Σ of the rows' cross-entropy, text_weights(2b) of the second run.
template <class T>
void Head<T>::pair_losses(const HeadScratch<T>& s, View<const T, 2> n, LossScale scale,
                          View<double, 1> loss_sum) const {
  fill_zero(ctx.stream, s.text_losses.data, to_size(s.text_losses.size()) * sizeof(double));
  for (std::int64_t begin = 0; begin < n.rows(); begin += ctx.buffers.head_chunk_rows) {
    const std::int64_t end = std::min(begin + ctx.buffers.head_chunk_rows, n.rows());
    chunk_logits(s, n, begin, end);
    chunk_loss(s, begin, end, {}, {});
    sum_by_group<acc_t<T>>(ctx.stream, s.loss.slice(0, end - begin), pairs.texts.slice(begin, end), s.text_losses);
  }
  if (ctx.groups.cp) ctx.groups.cp->all_reduce(ctx.stream, s.text_losses);
  const PairRule rule{pairs.beta, pairs.smoothing, scale.per_label, ctx.groups.cp_rank() == 0};
  forge::pair_losses(ctx.stream, s.text_losses, pairs.references, rule, s.text_weights, loss_sum, pairs.sums);
}

// Of rows [begin, end), whose losses are at hand.
template <class T>
void Head<T>::add_losses(const HeadScratch<T>& s, std::int64_t begin, std::int64_t end, View<double, 1> loss_sum,
                         View<double, 1> z_sum) const {
  using A = acc_t<T>;
  sum_into<A>(ctx.stream, s.loss.slice(0, end - begin), loss_sum);
  if (!by_source.loss.empty())
    sum_by_group<A>(ctx.stream, s.loss.slice(0, end - begin), by_source.sources.slice(begin, end), by_source.loss);
  sum_into<A>(ctx.stream, s.z.slice(0, end - begin), z_sum);
}

template <class T>
void Head<T>::forward(View<const T, 2> state, View<T, 2> d_state, LossScale scale, View<double, 1> loss_sum,
                      View<double, 1> z_sum) const {
  using A = acc_t<T>;
  Frame frame(ctx.arena);
  const auto s = workspace<HeadScratch<T>>(ctx);
  const View<const T, 2> n = gather_rows<T>(ctx, state, s.rows);
  const View<T, 2> d_n = ctx.groups.tp_size() > 1 ? s.d_rows : d_state;
  const double cap = ctx.spec().options.logit_soft_cap;
  const bool paired = !pairs.texts.empty();
  if (paired) pair_losses(s, n, scale, loss_sum);
  if (paired && !trains()) return;
  if (paired) scale.per_label = 1;  // the texts' weights have it
  for (std::int64_t begin = 0; begin < n.rows(); begin += ctx.buffers.head_chunk_rows) {
    const std::int64_t end = std::min(begin + ctx.buffers.head_chunk_rows, n.rows());
    const auto x = n.slice(begin, end);
    const View<A, 2> logits = chunk_logits(s, n, begin, end);
    View<T, 2> d_logits;
    if (trains()) {
      if constexpr (rounds<T>)
        d_logits = s.d_logits.slice(0, end - begin);
      else
        d_logits = cap > 0 ? s.d_logits.slice(0, end - begin) : logits;
    }
    if (!taken.logits.empty()) take_rows<A>(ctx.stream, logits, begin, taken.rows, taken.logits);
    chunk_loss(s, begin, end, scale, d_logits,
               paired ? RowWeights{pairs.texts.slice(begin, end), s.text_weights} : RowWeights{});
    if (!scores.empty()) chunk_scores(s, begin, end);
    if (cap > 0 && !d_logits.empty()) soft_cap_backward<T>(ctx.stream, logits, cap, d_logits);
    if (!paired) add_losses(s, begin, end, loss_sum, z_sum);
    if (!trains()) continue;
    linear_backward_input<T>(ctx, d_logits, w, d_n.slice(begin, end));
    if (!g.empty()) linear_backward_weight<T>(ctx, d_logits, x, g);
  }
  if (trains()) reduce_rows(ctx, d_n, d_state);
}

template <class T>
void head_logits(const Context<T>& ctx, const HeadParameters<const T>& w, View<const T, 2> x, View<T, 2> n,
                 const NormStatistics<T>& statistics, View<acc_t<T>, 2> logits) {
  norm_forward<T>(ctx, x, w.norm.weight, w.norm.bias, statistics, n);
  linear_forward<T, acc_t<T>>(ctx, n, w.output, {}, logits);
  if (const double cap = ctx.spec().options.logit_soft_cap; cap > 0) soft_cap<acc_t<T>>(ctx.stream, logits, cap);
}

FORGE_INSTANTIATE_CLASS(StateNorm);
FORGE_INSTANTIATE_CLASS(Head);
FORGE_INSTANTIATE_FUNCTION(head_logits);

}  // namespace forge
