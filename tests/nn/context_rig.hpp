#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "../device_values.hpp"
#include "../kernels/attention_case.hpp"
#include "../long_run.hpp"
#include "comm/device_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "context_layout.hpp"
#include "nn/context_attention.hpp"

// Attention of cp x tp ranks, as threads, against the reference of one rank with all rows and all heads.

namespace forge::context_rig {

using namespace reference;
using test::set_values;
using test::values_of;

constexpr std::uint64_t seed = 7;
constexpr std::int64_t first_sample = 7000000000, layer = 3, step = 5;

// The whole problem and its answer, with inputs rounded to T.
template <class T>
struct Whole {
  Layout n;
  std::vector<std::int32_t> positions, documents;
  std::vector<std::int64_t> samples;
  Inputs in;
  Heads d_o;
  Forward f;
  Backward g;

  explicit Whole(const Layout& layout)
      : n(layout),
        in{{},
           {},
           random_heads<T>(n.b * n.T, n.H, n.D, 1),
           random_heads<T>(n.b * n.T, n.K, n.D, 2),
           random_heads<T>(n.b * n.T, n.K, n.Dv, 3)},
        d_o(random_heads<T>(n.b * n.T, n.H, n.Dv, 4)),
        f{d_o, d_o, d_o},
        g{{in.q, in.k, in.v}, {in.q, in.k, in.v}} {
    std::int32_t document = 0;
    for (std::int64_t s = 0; s < n.b; ++s) {
      std::int64_t left = 0;
      for (std::int64_t t = 0; t < n.T; ++t, --left) {
        if (n.documents && left == 0) {
          ++document;
          left = 1 + static_cast<std::int64_t>(mix(9, static_cast<std::uint64_t>(document)) % 17);
        }
        positions.push_back(static_cast<std::int32_t>(t));
        documents.push_back(document);
        samples.push_back(first_sample + s);
      }
    }
    const auto list = [](const auto& x) {
      using I = typename std::decay_t<decltype(x)>::value_type;
      return View<const I, 1>(x.data(), {{static_cast<std::int64_t>(x.size())}});
    };
    // As Context::dropout_key says.
    const std::uint64_t key =
        random_key(seed, Purpose::dropout, step, (layer + 1) * 4 + static_cast<std::uint64_t>(DropoutPlace::attention));
    in.shape = {n.b, n.T, n.T, 1 / std::sqrt(static_cast<double>(n.D)), n.dropout, key, list(samples)};
    in.mask = {list(positions), list(positions), list(documents), list(documents), n.window};
    f = forward(in);
    g = backward(in, d_o, f.o, f.lse);
  }

  // Of one part and its merge with the others there is the error of a whole; sums that are rounded to T in parts are
  // rounded once more where the parts are joined.
  double relative() const {
    const Sizes sizes{.B = n.b, .Tq = n.T, .Tk = n.T, .H = n.H, .K = n.K, .D = n.D, .Dv = n.Dv};
    const double of_sums = (n.cp + 1) * relative_error<acc_t<T>>(sizes, f.score_magnitude);
    return of_sums + (std::is_same_v<T, acc_t<T>> ? 0 : 4 * roundoff<T>());
  }
};

// A rank's groups; null where they have one rank.
struct Groups {
  Communicator *tp = nullptr, *cp = nullptr, *inner = nullptr, *outer = nullptr;
};

// One rank's part of it.
template <class T>
struct Rank {
  using A = acc_t<T>;
  const Whole<T>& whole;
  const Layout& n;
  int c, t;
  std::vector<Token> tokens;
  BufferContext buffers;
  Arena arena;
  Buffer workspace;
  mutable Stream stream;  // both end before the memory that they work on
  Stream exchange;
  Gemm gemm;
  LayerServices<T> services;
  Context<T> ctx;
  Batch batch;
  View<T, 2> qkv, d_qkv, o, d_o;
  View<A, 2> lse, delta, d_q_sums;

  Rank(const Whole<T>& w, const Groups& groups)
      : whole(w),
        n(w.n),
        c(groups.cp ? groups.cp->rank() : 0),
        t(groups.tp ? groups.tp->rank() : 0),
        tokens(tokens_of(n, c)),
        buffers(context_of(n)),
        arena(std::size_t{16} << 20),
        workspace(std::size_t{1} << 20),
        stream(n.threads, n.compute),
        exchange(1, Stream::Kind::Worker),
        gemm(workspace.data(), workspace.bytes()),
        services{.stream = stream,
                 .gemm = gemm,
                 .arena = arena,
                 .buffers = buffers,
                 .seed = seed,
                 .groups = {.tp = groups.tp,
                            .cp = groups.cp,
                            .stream = n.behind ? &exchange : nullptr,
                            .cp_inner = groups.inner,
                            .cp_outer = groups.outer}},
        ctx{{.step = step}, services} {
    const std::int64_t R = buffers.microbatch.rows(), all = R * n.cp, H = heads(), D = n.D;
    const std::int64_t keys = n.cp > 1 ? all : 0;
    BufferLister l(buffers);
    const auto line = [&](auto& member, std::int64_t rows) { l.add(member, "", rows, 1); };
    line(batch.positions, R);
    line(batch.documents, R);
    line(batch.samples, R);
    if (keys > 0) {
      line(batch.key_positions, keys);
      line(batch.key_documents, keys);
      if (inner_of(n) > 1) line(batch.key_samples, keys);
    } else if (rounds<T>) {
      l.add(d_q_sums, "", R, H * D);
    }
    const std::int64_t fused = (H + kv_heads()) * D + kv_heads() * n.Dv;
    for (View<T, 2>* x : {&qkv, &d_qkv}) l.add(*x, "", R, fused);
    for (View<T, 2>* x : {&o, &d_o}) l.add(*x, "", R, H * n.Dv);
    for (View<A, 2>* x : {&lse, &delta}) l.add(*x, "", R, H);
    allocate(arena, l.list, Category::data);
    fill();
  }

  static BufferContext context_of(const Layout& n) {
    BufferContext c;
    ModelDeck& m = c.spec.options;
    m.heads = n.H / n.tp;
    m.kv_heads = n.K / n.tp;
    m.head_dim = n.D;
    if (n.Dv != n.D) {  // a value's head has a size of its own with latents
      m.attention = AttentionKind::mla;
      m.value_dim = n.Dv;
    }
    m.dropout = n.dropout;
    m.sliding_window = n.window;
    c.microbatch = {n.b, n.T, n.cp};
    c.precision = std::is_same_v<T, double>  ? fp64_precision
                  : std::is_same_v<T, float> ? fp32_precision
                                             : bf16_precision;
    c.tp = n.tp;
    c.cp_method = n.method;
    c.cp_inner = inner_of(n);
    return c;
  }
  std::int64_t heads() const { return n.H / n.tp; }
  std::int64_t kv_heads() const { return n.K / n.tp; }
  std::int64_t row_of(const Token& token) const { return token.sequence * n.T + token.position; }

  void fill() {
    fill_rows(tokens, batch.positions, batch.documents, batch.samples);
    if (n.cp > 1) fill_rows(key_tokens(n), batch.key_positions, batch.key_documents, batch.key_samples);
    std::vector<T> fused, d_out;
    for (const Token& token : tokens) {
      append(whole.in.q, token, heads(), n.D, fused);
      append(whole.in.k, token, kv_heads(), n.D, fused);
      append(whole.in.v, token, kv_heads(), n.Dv, fused);
      append(whole.d_o, token, heads(), n.Dv, d_out);
    }
    set_values(stream, qkv, fused);
    set_values(stream, d_o, d_out);
  }
  void fill_rows(const std::vector<Token>& list, View<std::int32_t, 1> positions, View<std::int32_t, 1> documents,
                 View<std::int64_t, 1> samples) {
    std::vector<std::int32_t> p, d;
    std::vector<std::int64_t> s;
    for (const Token& token : list) {
      const auto at = static_cast<std::size_t>(row_of(token));
      p.push_back(whole.positions[at]);
      d.push_back(whole.documents[at]);
      s.push_back(whole.samples[at]);
    }
    set_values(stream, positions, p);
    set_values(stream, documents, d);
    if (!samples.empty()) set_values(stream, samples, s);
  }
  // This rank's heads of a row.
  void append(const Heads& from, const Token& at, std::int64_t count, std::int64_t head, std::vector<T>& to) const {
    const double* x = from.at(row_of(at), t * count);
    for (std::int64_t i = 0; i < count * head; ++i) to.push_back(T(x[i]));
  }
  AttentionHeads<T> split(const View<T, 2>& fused) const {
    const auto part = [&](std::int64_t first, std::int64_t count, std::int64_t head_dim) {
      return View<T, 3>(fused.data + first * n.D, {{fused.rows(), count, head_dim}}, fused.pitch);
    };
    return {part(0, heads(), n.D), part(heads(), kv_heads(), n.D), part(heads() + kv_heads(), kv_heads(), n.Dv)};
  }
  View<T, 3> as_heads(const View<T, 2>& x) const { return View<T, 3>(x.data, {{x.rows(), heads(), n.Dv}}); }

  void run_forward() {
    context_attention_forward<T>(ctx, layer, batch, split(qkv), as_heads(o), lse);
    stream.synchronize();
  }
  void run_backward() {
    attention_delta<T>(stream, as_heads(d_o), as_heads(o), delta);
    context_attention_backward<T>(ctx, layer, batch, as_heads(d_o), split(qkv), as_heads(o), lse, delta, d_q_sums,
                                  split(d_qkv));
    stream.synchronize();
  }

  // |got − want| <= relative · magnitude of this rank's rows and heads.
  void expect_close(const View<T, 3>& got, const Heads& want, const Heads& magnitude, const char* what) const {
    const double relative = whole.relative();
    const std::int64_t count = got.extent(1);
    const std::vector<T> values = values_of(stream, got);
    for (std::size_t r = 0; r < tokens.size(); ++r)
      for (std::int64_t i = 0; i < got.columns(); ++i) {
        const std::int64_t at = row_of(tokens[r]);
        const double x =
            static_cast<double>(values[r * static_cast<std::size_t>(got.columns()) + static_cast<std::size_t>(i)]);
        ASSERT_LE(std::abs(x - want.at(at, t * count)[i]), relative * magnitude.at(at, t * count)[i])
            << what << " of rank " << c << ", sequence " << tokens[r].sequence << ", position " << tokens[r].position
            << ", column " << i;
      }
  }
  void expect_lse() const {
    const int inner = inner_of(n);
    std::vector<Token> rows = key_tokens(n);
    const auto block = static_cast<std::ptrdiff_t>(tokens.size()) * inner;
    rows = {rows.begin() + c / inner * block, rows.begin() + (c / inner + 1) * block};
    const std::int64_t count = heads() / inner, first = t * heads() + c % inner * count;
    const std::vector<A> values = values_of(stream, lse);
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::int64_t h = 0; h < count; ++h) {
        const double want = *whole.f.lse.at(row_of(rows[r]), first + h);
        ASSERT_LE(
            std::abs(static_cast<double>(values[r * static_cast<std::size_t>(count) + static_cast<std::size_t>(h)]) -
                     want),
            whole.relative() * (std::abs(want) + 1))
            << "lse " << r << ", head " << h;
      }
  }
  void expect_all() const {
    const AttentionHeads<T> d = split(d_qkv);
    expect_close(as_heads(o), whole.f.o, whole.f.o_magnitude, "o");
    expect_lse();
    expect_close(d.q, whole.g.value.q, whole.g.magnitude.q, "d_q");
    expect_close(d.k, whole.g.value.k, whole.g.magnitude.k, "d_k");
    expect_close(d.v, whole.g.value.v, whole.g.magnitude.v, "d_v");
  }
  std::vector<double> results() const {
    std::vector<double> all;
    for (const View<T, 2>& x : {o, d_qkv})
      for (const T value : values_of(stream, x)) all.push_back(static_cast<double>(value));
    for (const A value : values_of(stream, lse)) all.push_back(static_cast<double>(value));
    return all;
  }
};

// run(rank) on every rank of the layout.
template <class T, class Run>
void on_ranks(const Whole<T>& whole, const Run& run) {
  const Layout& n = whole.n;
  SCOPED_TRACE(text(n));
  run_ranks(n.cp * n.tp, [&](Communicator& world) {
    const auto device = device_communicator(world);
    const int place = device->rank() % n.tp, c = device->rank() / n.tp, inner = inner_of(n);
    const auto cp = device->split(place, device->rank());
    const auto tp = device->split(c, device->rank());
    const auto neighbours = device->split(c / inner * n.tp + place, device->rank());
    const auto others = device->split(c % inner * n.tp + place, device->rank());
    Groups groups{n.tp > 1 ? tp.get() : nullptr, n.cp > 1 ? cp.get() : nullptr};
    if (n.method == CpMethod::two_level) groups.inner = neighbours.get(), groups.outer = others.get();
    Rank<T> rank(whole, groups);
    run(rank);
    world.barrier();
  });
}

inline std::vector<Sent> sends_over_cp(const BufferContext& c, Pass pass) {
  Segments list(c);
  list_context(list, 0, pass);
  return list.all<Sent>();
}

inline void expect_traffic(const Traffic& before, const Traffic& after, const std::vector<Sent>& sends, Group group,
                           int ranks, const char* what) {
  Traffic predicted;
  for (const Sent& s : sends)
    if (s.group == group)
      predicted.add(s.collective,
                    sent_elements(s.collective, s.count, ranks) * static_cast<std::int64_t>(size_of(s.type)), s.times);
  for (std::size_t i = 0; i < collective_count; ++i) {
    EXPECT_EQ(after.calls[i] - before.calls[i], predicted.calls[i]) << what << ", " << name_of(Collective(i));
    EXPECT_EQ(after.bytes[i] - before.bytes[i], predicted.bytes[i]) << what << ", " << name_of(Collective(i));
  }
}

// An emulated device is slow: there one of so many layouts (stride_of).
inline bool left_out([[maybe_unused]] int of_each) {
#if defined(FORGE_VGPU)
  static int number = 0;
  return number++ % static_cast<int>(test::stride_of(static_cast<std::size_t>(of_each))) != 0;
#else
  return false;
#endif
}

// Results, bytes sent, and the scratch, all against the forecast.
template <class T>
void check(const Layout& n) {
  if (left_out(41)) return;
  const Whole<T> whole(n);
  on_ranks(whole, [](Rank<T>& rank) {
    const LayerGroups& g = rank.ctx.groups;
    const std::pair<Group, Communicator*> groups[] = {
        {Group::cp, g.cp}, {Group::cp_inner, g.cp_inner}, {Group::cp_outer, g.cp_outer}};
    using Counted = std::array<Traffic, 3>;
    const auto sent = [&] {
      Counted all;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (groups[i].second) all[i] = groups[i].second->traffic();
      return all;
    };
    const auto expect_sent = [&](const Counted& before, const Counted& after, Pass pass, const char* what) {
      const std::vector<Sent> sends = sends_over_cp(rank.buffers, pass);
      for (std::size_t i = 0; i < after.size(); ++i) {
        const int ranks = groups[i].second ? groups[i].second->size() : 1;
        expect_traffic(before[i], after[i], sends, groups[i].first, ranks, what);
      }
    };
    const std::size_t live = rank.arena.live();
    const Counted start = sent();
    rank.run_forward();
    const Counted middle = sent();
    EXPECT_EQ(rank.arena.high_water() - live, counted_bytes<ContextForward<T>>(rank.buffers));
    rank.run_backward();
    EXPECT_EQ(rank.arena.high_water() - live, std::max(counted_bytes<ContextForward<T>>(rank.buffers),
                                                       counted_bytes<ContextBackward<T>>(rank.buffers)));
    EXPECT_EQ(rank.arena.live(), live);
    expect_sent(start, middle, Pass::forward, "forward");
    expect_sent(middle, sent(), Pass::backward_input, "backward");
    rank.expect_all();
  });
}

}  // namespace forge::context_rig
