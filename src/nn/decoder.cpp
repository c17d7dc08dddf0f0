#include "nn/decoder.hpp"

#include <algorithm>
#include <numeric>

#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "model/rotary_table.hpp"
#include "nn/cache_layers.hpp"
#include "nn/rotary_buffers.hpp"

namespace forge {

namespace {

constexpr std::size_t workspace_bytes = std::size_t{16} << 20;

BufferContext decode_context(const ModelSpec& spec, const Precision& precision, const RoundingOptions& rounding,
                             std::int64_t rows) {
  // "full" keeps only the block inputs: everything else lives in a frame of its block.
  BufferContext context{spec, {1, rows, 1}, precision, Recompute::full, 1};
  context.rounding = rounding;
  return context;
}

// A residual stream's.
template <class T>
std::size_t stream_bytes(const BufferContext& c) {
  return align_up(to_size(c.stream_rows() * c.spec.C()) * sizeof(T));
}

ModelSpec without_capacity(ModelSpec spec) {
  spec.options.capacity_factor = 0;
  return spec;
}

}  // namespace

template <class T>
BufferContext Decoder<T>::piece_context(std::int64_t rows) const {
  return decode_context(spec_, precision_, rounding_, rows);
}

// Products of the largest piece; those of shorter ones have no more rows, groups or scales.
template <class T>
RoundingSizes Decoder<T>::rounded_sizes(const BufferContext& largest) {
  RoundingSizes sizes;
  for (std::int64_t layer = 0; layer < largest.spec.L(); ++layer) {
    if (!largest.rounding.has_block(layer)) continue;
    Segments list(largest);
    list_block(list, layer, Pass::forward, false);
    for (const ScaledProduct& product : list.scaled) sizes.cover(largest, product);
  }
  return sizes;
}

template <class T>
std::size_t Decoder<T>::arena_bytes(const BufferContext& run, const BufferContext& largest) {
  std::size_t frame = 0;  // of a block's forward pass; layers differ
  for (std::int64_t layer = 0; layer < run.spec.L(); ++layer)
    frame = std::max(frame, block_scratch(largest, layer, Pass::forward, false));
  const RoundingSizes rounded = rounded_sizes(largest);
  return counted_bytes<RoundingBuffers<T>>(largest, rounded) + counted_bytes<RunBuffers<T>>(run) +
         counted_bytes<DecoderBuffers<T>>(run) + counted_bytes<Batch>(largest) + 2 * stream_bytes<T>(largest) + frame;
}

template <class T>
Decoder<T>::Decoder(Stream& stream, const ModelSpec& spec, const Precision& precision,
                    const std::vector<LocalUnit>& units, const std::vector<const T*>& weights, std::int64_t capacity,
                    const std::vector<double>& router_biases, const RoundingOptions& rounding, std::int64_t piece)
    : stream_(stream),
      spec_(without_capacity(spec)),
      precision_(precision),
      rounding_(rounding),
      capacity_(capacity),
      piece_(std::min(piece, capacity)),
      run_(piece_context(capacity)),
      arena_(arena_bytes(run_, piece_context(piece_))),
      workspace_(workspace_bytes),
      gemm_(workspace_.data(), workspace_.bytes()),
      tokens_(to_size(capacity)),
      chosen_(1) {
  allocate(arena_, run_, Category::data, run_buffers_);
  allocate(arena_, run_, Category::data, buffers_);
  const BufferContext largest = piece_context(piece_);
  const RoundingSizes rounded = rounded_sizes(largest);
  allocate(arena_, largest, Category::workspace, rounded_, rounded);
  fill_rotary_buffers(stream_, run_, run_buffers_);
  if (!router_biases.empty()) {
    const std::vector<acc_t<T>> converted(router_biases.begin(), router_biases.end());
    copy_to_device(stream_, run_buffers_.routers.bias.data, converted.data(), converted.size() * sizeof(acc_t<T>));
    stream_.synchronize();
  }
  CacheLayers<T> layers(spec_, DecoderBuffers<T>::kept_of(spec_), buffers_.keys, buffers_.values, buffers_.delta,
                        cache_);
  for (std::int64_t l = 0; l < spec_.L(); ++l) layers.add(l);
  cache_.positions = buffers_.positions;
  cache_.documents = buffers_.documents;
  std::vector<std::int32_t> positions(to_size(capacity));
  std::iota(positions.begin(), positions.end(), 0);
  copy_to_device(stream_, cache_.positions.data, positions.data(), positions.size() * 4);
  fill_zero(stream_, cache_.documents.data, positions.size() * 4);
  stream_.synchronize();
  for (std::size_t u = 0; u < units.size(); ++u) switch (units[u].kind) {
      case UnitKind::token_table:
        head_.output = table_of(spec_, units[u], weights[u]);
        [[fallthrough]];
      case UnitKind::position_table:
        bind(embedding_, spec_, units[u], weights[u]);
        break;
      case UnitKind::block:
        blocks_.emplace_back();
        [[fallthrough]];
      case UnitKind::experts:  // right behind its block, like the next two
      case UnitKind::adapter:
      case UnitKind::expert_adapter:
        bind(blocks_.back(), spec_, units[u], weights[u]);
        break;
      case UnitKind::output:
      case UnitKind::final_norm:
        bind(head_, spec_, units[u], weights[u]);
    }
}

template <class T>
void Decoder<T>::append_piece(std::int64_t rows) {
  const BufferContext buffers = piece_context(rows);
  LayerServices<T> services{stream_, gemm_, arena_, buffers, run_buffers_.cosine, run_buffers_.sine};
  services.routers.bias = run_buffers_.routers.bias;  // without sums: nothing is counted
  services.scratch[0].rounding = rounded_;
  services.counts = &counts_;
  PassState<T> state{.step = 0, .training = false, .cache = &cache_};
  const Context<T> ctx{state, services};
  Frame frame(arena_);
  Batch batch;
  allocate(arena_, buffers, Category::data, batch);
  const auto bytes = to_size(rows) * 4;
  copy_to_device(stream_, batch.tokens.data, tokens_.data() + cache_.length, bytes);
  copy_on_device(stream_, batch.positions.data, cache_.positions.data + cache_.length, bytes);
  fill_zero(stream_, batch.documents.data, bytes);
  fill_zero(stream_, batch.samples.data, to_size(rows) * sizeof(std::int64_t));
  View<T, 2> x, next;  // the residual stream goes back and forth between them
  for (View<T, 2>* stream : {&x, &next})
    *stream = View<T, 2>(static_cast<T*>(arena_.allocate(stream_bytes<T>(buffers), Category::activations)),
                         {{rows, spec_.C()}});
  Embedding<T>{ctx, batch}.forward(embedding_, x);
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    state.rounding.block = buffers.rounding.has_block(static_cast<std::int64_t>(l));
    const Context<T> of_block{state, services};
    Block<T>{{of_block, static_cast<std::int64_t>(l), batch, x}, {}, blocks_[l]}.forward(next);
    std::swap(x, next);
  }
  cache_.length += rows;
  head_logits<T>(ctx, head_, x.slice(rows - 1, rows), buffers_.normed, buffers_.statistics, buffers_.logits);
}

template <class T>
void Decoder<T>::append(const std::vector<std::int32_t>& tokens) {
  require(!tokens.empty() && length() + static_cast<std::int64_t>(tokens.size()) <= capacity_,
          "a decoder was given no tokens, or more than its capacity");
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + length());
  for (const std::int64_t end = length() + std::ssize(tokens); length() < end;)
    append_piece(std::min(piece_, end - length()));
}

template <class T>
std::vector<double> Decoder<T>::logits() const {
  std::vector<acc_t<T>> logits(to_size(spec_.V()));
  copy_to_host(stream_, logits.data(), buffers_.logits.data, logits.size() * sizeof(acc_t<T>));
  stream_.synchronize();
  return {logits.begin(), logits.end()};
}

template <class T>
std::int32_t Decoder<T>::choose(const TokenChoice& how) {
  const View<const acc_t<T>, 1> logits(buffers_.logits.data, {{spec_.V()}});
  choose_token<acc_t<T>>(stream_, logits, how, buffers_.choice, buffers_.chosen);
  copy_to_host(stream_, chosen_.data(), buffers_.chosen.data, sizeof(std::int32_t));
  stream_.synchronize();
  return chosen_.front();
}

FORGE_INSTANTIATE_CLASS(Decoder);

}  // namespace forge
