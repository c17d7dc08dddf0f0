#include "bench.hpp"

namespace forge::bench {

namespace {

struct Layer {
  const char* name;
  int64_t rows, out, in;  // y(rows, out) = x(rows, in) W(out, in)^T
  bool logits = false;    // the forward product is written in fp32
};

void bench_layer(const Bench& b, const Layer& layer) {
  const int64_t rows = b.size(layer.rows, 16), out = b.size(layer.out, 24), in = b.size(layer.in, 32);
  Memory memory(b.stream);
  const auto x = memory.random<bf16, 2>({{rows, in}}), w = memory.random<bf16, 2>({{out, in}}, 0.02);
  const auto y = memory.random<bf16, 2>({{rows, out}});
  const auto dw = memory.zeros<float, 2>({{out, in}});
  const View<const bf16, 2> x_in = x, w_in = w, y_in = y;
  const double flop = 2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
  const std::string sizes = word("rows", rows) + " " + word("out", out) + " " + word("in", in);
  const auto row = [&](const char* pass, double seconds) {
    print_row("products", std::string(layer.name) + ", " + pass, sizes, seconds, flop, 0);
  };
  // Input and weight gradients first: the forward product overwrites y.
  row("input gradient",
      seconds_of(b, [&] { b.gemm(b.stream, Transpose::no, Transpose::no, 1.0, y_in, w_in, 0.0, x); }));
  row("weight gradient",
      seconds_of(b, [&] { b.gemm(b.stream, Transpose::yes, Transpose::no, 1.0, y_in, x_in, 1.0, dw); }));
  const auto forward = [&](const auto& to) {
    row("forward", seconds_of(b, [&] { b.gemm(b.stream, Transpose::no, Transpose::yes, 1.0, x_in, w_in, 0.0, to); }));
  };
  if (layer.logits)
    forward(memory.zeros<float, 2>({{rows, out}}));
  else
    forward(y);
}

}  // namespace

// The products of a 7B layer (C 4096, H 32, K 8, D 128, F 14336, V 128256) on 8192 tokens, of Qwen3-30B-A3B's
// attention, and a square, which is what other projects quote.
void bench_products(const Bench& b) {
  for (const Layer& layer : {Layer{"square", 8192, 8192, 8192}, Layer{"7B qkv", 8192, 6144, 4096},
                             Layer{"7B out", 8192, 4096, 4096}, Layer{"7B gate and up", 8192, 28672, 4096},
                             Layer{"7B down", 8192, 4096, 14336}, Layer{"7B head, 2048 rows", 2048, 128256, 4096, true},
                             Layer{"Qwen3-30B qkv", 8192, 5120, 2048}, Layer{"Qwen3-30B out", 8192, 2048, 4096}})
    bench_layer(b, layer);
}

}  // namespace forge::bench
