#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "../device_values.hpp"
#include "core/normal.hpp"
#include "layout/stage.hpp"
#include "nn/block.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/host_counts.hpp"
#include "nn/rotary_buffers.hpp"
#include "parallel/storage.hpp"

namespace forge::test {

// A small model whose sizes force remainders.
inline ModelDeck small_model() {
  ModelDeck m;
  m.layers = 2;
  m.width = 20;
  m.heads = 6;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn = 17;
  m.vocabulary = 23;
  m.initial_std = 0.3;
  return m;
}

// Multi-head latent attention: heads of keys and values of different sizes.
inline void set_latent(ModelDeck& m, std::int64_t q_lora) {
  m.attention = AttentionKind::mla;
  m.kv_heads = m.head_dim = 0;
  m.q_lora = q_lora;
  m.kv_lora = 7;
  m.nope_dim = 3;
  m.rope_dim = 4;
  m.value_dim = 5;
  m.latent_norm_epsilon = 1e-3;
}

// Gated DeltaNet in the first layer: value heads that share key heads, of different sizes.
inline void set_delta(ModelDeck& m) {
  m.full_attention_interval = 2;
  m.linear_key_heads = 2;
  m.linear_value_heads = 4;
  m.linear_key_dim = 5;
  m.linear_value_dim = 3;
  m.linear_conv_taps = 3;
}

// One block, an embedding and a head in fp64, with everything that they need, and random contents.
struct BlockRig {
  using T = double;
  static constexpr std::size_t arena_bytes = std::size_t{64} << 20;

  BlockRig(const ModelDeck& deck, Recompute recompute, Microbatch microbatch = {2, 7}, std::int64_t head_chunk = 5)
      : spec(resolve_model(deck)),
        buffers{spec, microbatch, fp64_precision, recompute, head_chunk},
        arena(arena_bytes),
        workspace(1 << 20),
        gemm(workspace.data(), workspace.bytes()),
        storage(arena, stream, whole_units(spec), fp64_precision, {true, {}}),
        services{.stream = stream, .gemm = gemm, .arena = arena, .buffers = buffers, .seed = 7, .counts = &counts},
        context{{.step = 3}, services} {
    allocate_list([&](BufferLister& l) { run.list(l); });
    fill_rotary_buffers<T>(stream, buffers, run);
    services.cosine = run.cosine;
    services.sine = run.sine;
    allocate_list([&](BufferLister& l) {
      batch.list(l);
      state.list_input(l);
      state.list_of_norm(l, false);
      state.list_state(l);
    });
    allocate_list([&](BufferLister& l) { dropped.list(l, true); });
    services.scratch[0].dropped = dropped.values;
    saved_block = saved_of(0);
    fill_batch();
    if (spec.options.router_bias) {
      // Far apart, so that a small step doesn't change the choice: experts 2 and 1 of 3 or more.
      const View<T, 2> biases = services.routers.bias = run.routers.bias;
      std::vector<T> bias;
      for (std::int64_t e = 0; e < biases.size(); ++e)
        bias.push_back(e % spec.E() == 2 ? 20 : (e % spec.E() == 1 ? 10 : 0));
      set_values(stream, biases, bias);
    }
    for (std::size_t u = 0; u < storage.size(); ++u) randomise(storage.unit(u).master, 100 + u, 0.4, 1.0);
  }

  // Memory for the list of list(lister), for as long as the rig, or the frame around it, lives. It holds NaNs, so that
  // no test passes with numbers of an earlier pass.
  template <class F>
  void allocate_list(F list, BufferLister::Part part = BufferLister::Part::all) {
    BufferLister lister(buffers, part);
    list(lister);
    if (lister.list.empty()) return;
    const std::vector<char> nans(aligned_bytes(lister.list), '\xff');
    void* memory = arena.allocate(nans.size(), Category::activations);
    copy_to_device(stream, memory, nans.data(), nans.size());
    stream.synchronize();
    place(lister.list, memory);
  }
  BlockBuffers<T> saved_of(std::int64_t layer) {
    BlockBuffers<T> b;
    allocate_list([&](BufferLister& l) { b.list(l, layer); }, BufferLister::Part::saved);
    return b;
  }
  // A layer's block on this rank's x(R,C), with weights and gradients.
  Block<T> block_on(const View<const T, 2>& x) const { return block_on(x, 0, block(), block_gradient(), saved_block); }
  Block<T> block_on(const View<const T, 2>& x, std::int64_t layer, const BlockParameters<const T>& w,
                    const BlockParameters<T>& g, const BlockBuffers<T>& saved) const {
    return {{context, layer, batch, x}, saved, w, g};
  }
  // Adds recomputed buffers, and buffers from B for W.
  void add_backward(Block<T>& b) {
    allocate_list([&](BufferLister& l) { b.b.list(l, b.p.layer); }, BufferLister::Part::recomputed);
    allocate_list([&](BufferLister& l) { b.b.list_gradients(l, b.p.layer); });
  }
  // B and W in one frame, as the tasks of a fused backward do it.
  void backward(Block<T> b, View<const T, 2> d_out, View<T, 2> dx) {
    Frame frame(arena);
    add_backward(b);
    b.recompute();
    b.backward_input(d_out, dx);
    b.backward_weight(d_out);
  }

  // values(i) = offset for vectors such as norm weights would do as well; random ones around `offset` test more.
  void randomise(View<T, 1> x, std::uint64_t key, double scale, double offset = 0) {
    std::vector<T> values;
    for (std::int64_t i = 0; i < x.size(); ++i)
      values.push_back(scale * normal(key, static_cast<std::uint64_t>(i)) + (i % 3 == 0 ? offset * 0.1 : 0));
    set_values(stream, x, values);
  }

  void fill_batch() {
    const std::int64_t t = buffers.microbatch.sequence_tokens, rows = buffers.microbatch.rows();
    std::vector<std::int32_t> tokens, labels, positions, documents;
    std::vector<std::int64_t> samples;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto u = static_cast<std::uint64_t>(r);
      tokens.push_back(static_cast<std::int32_t>(mix(1, u) % 5 * 4));
      labels.push_back(r % 6 == 4 ? -1 : static_cast<std::int32_t>(mix(2, u) % 23));
      positions.push_back(static_cast<std::int32_t>(r % t));
      documents.push_back(r % t >= 4 ? 1 : 0);
      samples.push_back(40 + r / t);
    }
    set_values(stream, batch.tokens, tokens);
    set_values(stream, batch.labels, labels);
    set_values(stream, batch.positions, positions);
    set_values(stream, batch.documents, documents);
    set_values(stream, batch.samples, samples);
    set_values(stream, batch.token_order, order_of(tokens));
    if (!spec.rope()) set_values(stream, batch.position_order, order_of(positions));
  }

  static std::vector<std::int32_t> order_of(const std::vector<std::int32_t>& keys) {
    std::vector<std::int32_t> order;
    for (std::size_t r = 0; r < keys.size(); ++r) order.push_back(static_cast<std::int32_t>(r));
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
    });
    return order;
  }

  // Rows of activations of their own, (R, C).
  using Rows = DeviceArray<T, 2>;
  Rows rows(const std::vector<double>& values) { return Rows(stream, {{buffers.microbatch.rows(), spec.C()}}, values); }
  Rows rows() { return Rows(stream, {{buffers.microbatch.rows(), spec.C()}}); }
  // Of a storage's unit.
  std::vector<double> values(const View<T, 1>& view) { return values_of(stream, view); }
  std::vector<double> random_rows(std::uint64_t key) const {
    std::vector<double> values(static_cast<std::size_t>(buffers.microbatch.rows() * spec.C()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal(key, i);
    return values;
  }
  std::size_t block_unit() const { return find_unit(storage.units(), UnitKind::block, 0); }
  // The units of layer 0: its block, and its experts and its adapters where it has some.
  std::vector<std::size_t> layer_units() const {
    std::vector<std::size_t> units{block_unit()};
    if (spec.is_moe(0)) units.push_back(find_unit(storage.units(), UnitKind::experts, 0));
    if (has_adapters(spec, 0)) units.push_back(find_unit(storage.units(), UnitKind::adapter, 0));
    return units;
  }
  template <class P>
  BlockParameters<P> block_of() const {
    BlockParameters<P> members;
    for (const std::size_t unit : layer_units()) bind(members, spec, storage.local(unit), base<P>(unit));
    return members;
  }
  BlockParameters<const T> block() const { return block_of<const T>(); }
  BlockParameters<T> block_gradient() const { return block_of<T>(); }

  // A unit's weights, or its gradients.
  template <class P>
  P* base(std::size_t unit) const {
    if constexpr (std::is_const_v<P>)
      return storage.unit(unit).whole.data;
    else
      return storage.unit(unit).sums.data;
  }
  template <class P>
  View<P, 2> table(UnitKind kind) const {
    const std::size_t unit = find_unit(storage.units(), kind);
    return unit == no_unit ? View<P, 2>() : table_of(spec, storage.local(unit), base<P>(unit));
  }
  template <class P>
  EmbeddingParameters<P> embedding_of() const {
    return {table<P>(UnitKind::token_table), table<P>(UnitKind::position_table)};
  }
  template <class P>
  HeadParameters<P> head_of() const {
    const std::size_t norm = find_unit(storage.units(), UnitKind::final_norm);
    HeadParameters<P> members{table<P>(spec.options.tied_embeddings ? UnitKind::token_table : UnitKind::output), {}};
    bind(members, spec, storage.local(norm), base<P>(norm));
    return members;
  }
  EmbeddingParameters<const T> embedding() const { return embedding_of<const T>(); }
  HeadParameters<const T> head() const { return head_of<const T>(); }
  EmbeddingParameters<T> embedding_gradient() const { return embedding_of<T>(); }
  HeadParameters<T> head_gradient() const { return head_of<T>(); }
  StateNorm<T> final_norm() const { return {context, state.x, state.norm, head(), head_gradient()}; }
  Head<T> head_layer(bool gradients) const {
    return {context, batch.labels, {0, spec.V()}, head().output, gradients ? head_gradient().output : View<T, 2>()};
  }

  Stream stream;
  ModelSpec spec;
  BufferContext buffers;
  Arena arena;
  Buffer workspace;
  Gemm gemm;
  ParameterStorage<T> storage;
  HostCounts counts;
  LayerServices<T> services;
  Context<T> context;
  RunBuffers<T> run;
  DroppedRows<T> dropped;
  Batch batch;
  StateBuffers<T> state;
  BlockBuffers<T> saved_block;
};

// Sums of losses and of z, in device memory.
class LossSums {
 public:
  explicit LossSums(Stream& stream) : sums_(stream, {{2}}) {}
  View<double, 1> loss() const { return sums_.view().slice(0, 1); }
  View<double, 1> z() const { return sums_.view().slice(1, 2); }
  void clear() { sums_.set({0, 0}); }
  std::pair<double, double> get() const {
    const auto values = sums_.get();
    return {values[0], values[1]};
  }

 private:
  DeviceArray<double, 1> sums_;
};

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
// x + e d
inline std::vector<double> moved(std::vector<double> x, double e, const std::vector<double>& d) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += e * d[i];
  return x;
}
inline void append(std::vector<double>& to, const std::vector<double>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// d/dε f(ε) at 0 by central differences and Richardson's extrapolation: error O(h⁴) in the step, eps/h in rounding.
template <class F>
double derivative(F&& f) {
  constexpr double h = 2e-3;
  const double coarse = (f(h) - f(-h)) / (2 * h), fine = (f(h / 2) - f(-h / 2)) / h;
  const double finer = (f(h / 4) - f(-h / 4)) / (h / 2);
  const double a = (4 * fine - coarse) / 3, b = (4 * finer - fine) / 3;
  return (16 * b - a) / 15;
}
// Relative to the sum of magnitudes: eps / (h/4), a hundredfold for the extrapolation's weights and the chain of
// layers.
constexpr double derivative_tolerance = 100 * 2.2e-16 / (2e-3 / 4) * 10;

}  // namespace forge::test
