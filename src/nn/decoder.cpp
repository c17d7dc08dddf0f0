#include "nn/decoder.hpp"

#include <algorithm>

#include "core/bytes.hpp"
#include "model/rotary_table.hpp"
#include "nn/rotary_buffers.hpp"

namespace forge {

namespace {

constexpr std::size_t workspace_bytes = std::size_t{16} << 20;

BufferContext decode_context(const ModelSpec& spec, const Precision& precision, std::int64_t rows) {
  // "full" keeps only the block inputs: everything else lives in a frame of its block.
  return {spec, {1, rows, 1}, precision, Recompute::full, 1};
}

ModelSpec without_capacity(ModelSpec spec) {
  spec.options.capacity_factor = 0;
  return spec;
}

// Of a block's forward pass; layers differ.
std::size_t largest_frame(const BufferContext& c) {
  std::size_t bytes = 0;
  for (std::int64_t layer = 0; layer < c.spec.L(); ++layer)
    bytes =
        std::max(bytes, aligned_bytes(recomputed_of_block(c, layer)) + aligned_bytes(scratch_forward_block(c, layer)) +
                            aligned_bytes(scratch_forward_latents(c)));
  return bytes;
}

}  // namespace

template <class T>
BufferContext Decoder<T>::piece_context(std::int64_t rows) const {
  return decode_context(spec_, precision_, rows);
}

template <class T>
std::size_t Decoder<T>::arena_bytes(const BufferContext& run, const BufferContext& largest) {
  const auto rows = static_cast<std::size_t>(run.microbatch.sequence_tokens);
  const auto layers = static_cast<std::size_t>(run.spec.L());
  const auto cached = [&](std::int64_t columns) {
    return align_up(rows * static_cast<std::size_t>(columns) * sizeof(T));
  };
  const auto v = static_cast<std::size_t>(run.spec.V()), c = static_cast<std::size_t>(run.spec.C());
  return aligned_bytes(run_buffers(run)) + layers * (cached(run.spec.kv_columns()) + cached(run.spec.v_columns())) +
         2 * align_up(rows * sizeof(std::int32_t)) + align_up(v * sizeof(acc_t<T>)) + align_up(2 * sizeof(acc_t<T>)) +
         align_up(c * sizeof(T)) + aligned_bytes(batch_buffers(largest)) + 2 * aligned_bytes(block_input(largest)) +
         largest_frame(largest);
}

template <class T>
Decoder<T>::Decoder(Stream& stream, const ModelSpec& spec, const Precision& precision,
                    const std::vector<LocalUnit>& units, const std::vector<const T*>& weights, std::int64_t capacity,
                    const std::vector<double>& router_biases)
    : stream_(stream),
      spec_(without_capacity(spec)),
      precision_(precision),
      capacity_(capacity),
      run_(decode_context(spec_, precision, capacity)),
      arena_(arena_bytes(run_, decode_context(spec_, precision, std::min(piece, capacity)))),
      workspace_(workspace_bytes),
      gemm_(workspace_.data(), workspace_.bytes()) {
  auto allocate = [&](std::int64_t elements, std::size_t size) {
    return arena_.allocate(static_cast<std::size_t>(elements) * size, Category::data);
  };
  run_set_.add(run_buffers(run_), arena_, Category::data);
  fill_rotary_buffers<T>(stream_, run_, run_set_);
  for (std::int64_t l = 0; l < spec_.L(); ++l)
    for (const auto& [cache, columns] : {std::pair{&cache_.k, spec_.kv_columns()}, {&cache_.v, spec_.v_columns()}})
      cache->push_back(View<T, 2>(static_cast<T*>(allocate(capacity * columns, sizeof(T))), {{capacity, columns}}));
  if (!router_biases.empty()) {
    const std::vector<acc_t<T>> converted(router_biases.begin(), router_biases.end());
    copy_to_device(stream_, run_set_.raw(Buf::router_bias), converted.data(), converted.size() * sizeof(acc_t<T>));
    stream_.synchronize();
  }
  std::vector<std::int32_t> positions(static_cast<std::size_t>(capacity));
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
  for (auto* view : {&cache_.positions, &cache_.documents})
    *view = View<std::int32_t, 1>(static_cast<std::int32_t*>(allocate(capacity, 4)), {{capacity}});
  copy_to_device(stream_, cache_.positions.data, positions.data(), positions.size() * 4);
  fill_zero(stream_, cache_.documents.data, positions.size() * 4);
  stream_.synchronize();
  using A = acc_t<T>;
  logits_ = View<A, 2>(static_cast<A*>(allocate(spec_.V(), sizeof(A))), {{1, spec_.V()}});
  statistics_ = View<A, 1>(static_cast<A*>(allocate(2, sizeof(A))), {{2}});
  normed_ = View<T, 2>(static_cast<T*>(allocate(spec_.C(), sizeof(T))), {{1, spec_.C()}});
  View<const T, 2> output;
  for (std::size_t u = 0; u < units.size(); ++u) switch (units[u].kind) {
      case UnitKind::token_table:
        embedding_.tokens = output = table_tensor(spec_, units[u], weights[u]);
        break;
      case UnitKind::position_table:
        embedding_.positions = table_tensor(spec_, units[u], weights[u]);
        break;
      case UnitKind::experts:  // right behind its block
        set_expert_tensors(blocks_.back(), spec_, spec_.E(), units[u], weights[u]);
        break;
      case UnitKind::block:
        blocks_.push_back(block_tensors(spec_, units[u], weights[u]));
        break;
      case UnitKind::output:
        output = table_tensor(spec_, units[u], weights[u]);
        break;
      case UnitKind::final_norm:
        head_ = head_tensors(spec_, output, units[u], weights[u]);
    }
}

template <class T>
void Decoder<T>::append_piece(const std::int32_t* tokens, std::int64_t rows) {
  const BufferContext buffers = piece_context(rows);
  Context<T> ctx{stream_, gemm_, arena_, buffers, {}, {}, 0, 0, false, &cache_};
  if (spec_.rope()) {
    ctx.cosine = run_set_.matrix<acc_t<T>>(Buf::cosine);
    ctx.sine = run_set_.matrix<acc_t<T>>(Buf::sine);
  }
  if (spec_.options.router_bias) ctx.router.bias = run_set_.matrix<acc_t<T>>(Buf::router_bias);
  Frame frame(arena_);
  BufferSet first, second;  // the residual stream goes back and forth between them
  first.add(batch_buffers(buffers), arena_, Category::data);
  const auto bytes = static_cast<std::size_t>(rows) * 4;
  copy_to_device(stream_, first.raw(Buf::tokens), tokens, bytes);
  copy_on_device(stream_, first.raw(Buf::positions), cache_.positions.data + cache_.length, bytes);
  fill_zero(stream_, first.raw(Buf::documents), bytes);
  second = first;
  first.add(block_input(buffers), arena_, Category::activations);
  second.add(block_input(buffers), arena_, Category::activations);
  embed_forward<T>(ctx, embedding_, first, first.matrix<T>(Buf::x));
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    block_forward<T>(ctx, static_cast<std::int64_t>(l), blocks_[l], first, second.matrix<T>(Buf::x));
    std::swap(first, second);
  }
  cache_.length += rows;
  const View<const T, 2> x = first.matrix<T>(Buf::x);
  head_logits<T>(ctx, head_, x.slice(rows - 1, rows), normed_, statistics_.slice(0, 1), statistics_.slice(1, 2),
                 logits_);
}

template <class T>
std::vector<double> Decoder<T>::append(const std::vector<std::int32_t>& tokens) {
  require(!tokens.empty() && length() + static_cast<std::int64_t>(tokens.size()) <= capacity_,
          "a decoder was given no tokens, or more than its capacity");
  for (std::size_t begin = 0; begin < tokens.size(); begin += static_cast<std::size_t>(piece))
    append_piece(tokens.data() + begin,
                 std::min<std::int64_t>(piece, static_cast<std::int64_t>(tokens.size() - begin)));
  std::vector<acc_t<T>> logits(static_cast<std::size_t>(spec_.V()));
  copy_to_host(stream_, logits.data(), logits_.data, logits.size() * sizeof(acc_t<T>));
  stream_.synchronize();
  return {logits.begin(), logits.end()};
}

template class Decoder<double>;
template class Decoder<float>;
template class Decoder<bf16>;

}  // namespace forge
