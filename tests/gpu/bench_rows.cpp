#include "bench.hpp"
#include "core/partials.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/kernels.hpp"
#include "optim/rule.hpp"

namespace forge::bench {

namespace {

void bench_norms(const Bench& b, int64_t R, int64_t C) {
  Memory memory(b.stream);
  const auto x = memory.random<bf16, 2>({{R, C}}), y = memory.zeros<bf16, 2>({{R, C}}),
             dy = memory.random<bf16, 2>({{R, C}}), h = memory.zeros<bf16, 2>({{R, C}});
  const auto w = memory.random<bf16, 1>({{C}});
  const auto rstd = memory.zeros<float, 1>({{R}}), mean = memory.zeros<float, 1>({{R}}),
             dw = memory.zeros<float, 1>({{C}}), db = memory.zeros<float, 1>({{C}});
  const auto partial = memory.zeros<float, 2>({{2 * norm_backward_chunks(R), C}});
  const std::string sizes = word("R", R) + " " + word("C", C);
  const double pass = 2.0 * static_cast<double>(R * C);  // bytes of x
  const auto row = [&](const char* kernel, double seconds, double passes) {
    print_row("rows", kernel, sizes, seconds, 0, passes * pass);
  };
  row("rmsnorm forward", seconds_of(b, [&] { rmsnorm_forward<bf16>(b.stream, x, w, 1e-5, y, rstd); }), 2);
  row("residual add and rmsnorm",
      seconds_of(b, [&] { residual_rmsnorm_forward<bf16>(b.stream, x, dy, w, 1e-5, h, y, rstd); }), 4);
  row("rmsnorm backward, + residual",
      seconds_of(b, [&] { rmsnorm_backward<bf16>(b.stream, dy, x, w, rstd, h, y, partial, dw); }), 4);
  row("layernorm backward, + residual",
      seconds_of(b, [&] { layernorm_backward<bf16>(b.stream, dy, x, w, mean, rstd, h, y, partial, dw, db); }), 4);
  row("residual add", seconds_of(b, [&] { residual_add<bf16>(b.stream, x, dy, y, Dropout{}); }), 3);
}

// The angles of position r: r / 10000^(2i/D), as rotary positions have them.
std::vector<float> angles(int64_t rows, int64_t D, double (*function)(double)) {
  std::vector<float> values;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < D / 2; ++i)
      values.push_back(static_cast<float>(
          function(static_cast<double>(r) * std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(D)))));
  return values;
}

void bench_heads(const Bench& b) {
  const int64_t R = b.size(8192, 16), H = b.size(32, 4), K = b.size(8, 2), D = b.size(128, 16);
  const int64_t turned = H + K, width = (H + 2 * K) * D;
  Memory memory(b.stream);
  const auto qkv = memory.random<bf16, 2>({{R, width}}), normed = memory.zeros<bf16, 2>({{R, width}}),
             gradient = memory.random<bf16, 2>({{R, width}});
  const auto w = memory.random<bf16, 1>({{D}});
  const auto rstd = memory.zeros<float, 2>({{R, turned}}), delta = memory.zeros<float, 2>({{R, turned}}),
             partial = memory.zeros<float, 2>({{norm_backward_chunks(R), D}});
  const auto dw = memory.zeros<float, 1>({{D}}), dk = memory.zeros<float, 1>({{D}});
  const Array<int64_t, 2> table{{R, D / 2}};
  const View<const float, 2> cosine(memory.values(angles(R, D, std::cos)).data, table);
  const View<const float, 2> sine(memory.values(angles(R, D, std::sin)).data, table);
  std::vector<std::int32_t> position(static_cast<std::size_t>(R));
  for (std::size_t i = 0; i < position.size(); ++i) position[i] = static_cast<std::int32_t>(i);
  const View<const std::int32_t, 1> positions = memory.values(position);
  const auto heads = [&](const View<bf16, 2>& x, int64_t count) {
    return View<bf16, 3>(x.data, {{R, count, D}}, width);
  };
  const auto row = [&](const char* kernel, int64_t count, double seconds, double passes = 2) {
    print_row("rows", kernel, word("R", R) + " " + word("heads", count) + " " + word("D", D), seconds, 0,
              passes * 2.0 * static_cast<double>(R * count * D));
  };
  row("head norm forward", turned, seconds_of(b, [&] {
        head_norm_forward<bf16>(b.stream, heads(qkv, turned), {w, w, H}, 1e-6, positions, cosine, sine,
                                heads(normed, turned), rstd);
      }));
  row("head norm backward with rotation, and its weights'", turned,
      seconds_of(b,
                 [&] {
                   head_norm_backward<bf16>(b.stream, heads(gradient, turned), heads(qkv, turned), {w, w, H}, rstd,
                                            positions, cosine, sine, partial, dw, dk);
                 }),
      3);
  row("attention delta", turned,
      seconds_of(b, [&] { attention_delta<bf16>(b.stream, heads(gradient, turned), heads(qkv, turned), delta); }));
  row("rotary", turned,
      seconds_of(b, [&] { rotary<bf16>(b.stream, heads(qkv, turned), positions, cosine, sine, false); }));
}

void bench_swiglu(const Bench& b) {
  const int64_t R = b.size(8192, 16), F = b.size(14336, 24);
  Memory memory(b.stream);
  const auto gate_up = memory.random<bf16, 2>({{R, 2 * F}}), d_gate_up = memory.zeros<bf16, 2>({{R, 2 * F}});
  const auto act = memory.zeros<bf16, 2>({{R, F}}), d_act = memory.random<bf16, 2>({{R, F}});
  const std::string sizes = word("R", R) + " " + word("F", F);
  const double pass = 2.0 * static_cast<double>(R * F);
  print_row("rows", "swiglu forward", sizes, seconds_of(b, [&] { swiglu_forward<bf16>(b.stream, gate_up, act); }), 0,
            3 * pass);
  print_row("rows", "swiglu backward", sizes,
            seconds_of(b, [&] { swiglu_backward<bf16>(b.stream, gate_up, d_act, d_gate_up); }), 0, 5 * pass);
}

void bench_loss(const Bench& b) {
  const int64_t R = b.size(2048, 16), V = b.size(128256, 40);
  Memory memory(b.stream);
  const auto logits = memory.random<float, 2>({{R, V}});
  const auto d_logits = memory.zeros<bf16, 2>({{R, V}});
  const auto loss = memory.zeros<float, 1>({{R}}), z = memory.zeros<float, 1>({{R}});
  std::vector<std::int32_t> label(static_cast<std::size_t>(R));
  for (std::size_t i = 0; i < label.size(); ++i) label[i] = static_cast<std::int32_t>(static_cast<int64_t>(i) * 61 % V);
  const View<const std::int32_t, 1> labels = memory.values(label);
  print_row("rows", "cross-entropy and its gradient", word("R", R) + " " + word("V", V),
            seconds_of(b, [&] { cross_entropy<bf16>(b.stream, logits, labels, 1e-3, 0, loss, z, d_logits); }), 0,
            6.0 * static_cast<double>(R * V));
}

void bench_update(const Bench& b) {
  const int64_t n = b.size(int64_t{1} << 27, 1024);
  Memory memory(b.stream);
  const auto g = memory.random<float, 1>({{n}}), p = memory.random<float, 1>({{n}}), m = memory.zeros<float, 1>({{n}}),
             v = memory.zeros<float, 1>({{n}});
  const auto copy = memory.zeros<bf16, 1>({{n}});
  const StepScalars all_well{0, 0, 1, 1, 1};
  const View<const StepScalars, 1> scalars = memory.values(std::vector<StepScalars>{all_well});
  const UpdateArgs<bf16> run{g, p, copy, {{DType::f32, m.data}, {DType::f32, v.data}}, true};
  const auto elements = static_cast<double>(n);
  print_row("rows", "AdamW, fp32 with a bf16 copy", word("n", n),
            seconds_of(b,
                       [&] {
                         update_run<bf16>(b.stream, OptimizerDeck{}, {1, 1e-4, scalars}, run);
                       }),
            0, 30 * elements);
  const auto partial = memory.zeros<double, 1>({{sum_partials}});
  const auto out = memory.zeros<double, 1>({{1}});
  print_row("rows", "sum of squares, fp32", word("n", n),
            seconds_of(b, [&] { sum_of_squares<float>(b.stream, g, partial, out); }), 0, 4 * elements);
  print_row("rows", "convert fp32 to bf16", word("n", n),
            seconds_of(b, [&] { convert<float, bf16>(b.stream, p, copy); }), 0, 6 * elements);
  // A kernel's own rate stands beside that of a copy of as many bytes: starts and ends count for small ones.
  for (const int64_t part : {b.size(int64_t{1} << 24, 512), b.size(int64_t{5} << 22, 640),
                             b.size(int64_t{1} << 25, 768), b.size(int64_t{1} << 26, 896), n})
    print_row("rows", "copy, fp32", word("n", part),
              seconds_of(b, [&] { copy_on_device(b.stream, m.data, g.data, static_cast<std::size_t>(part) * 4); }), 0,
              8 * static_cast<double>(part));
}

}  // namespace

// Kernels that memory bounds; bytes are the least that must be read and written.
void bench_rows(const Bench& b) {
  bench_norms(b, b.size(16384, 16), b.size(4096, 32));
  bench_norms(b, b.size(16384, 16), b.size(2048, 40));  // one piece of 16 bytes a thread in bf16
  bench_heads(b);
  bench_swiglu(b);
  bench_loss(b);
  bench_update(b);
}

}  // namespace forge::bench
