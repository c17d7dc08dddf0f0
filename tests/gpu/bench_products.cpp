#include "bench.hpp"
#include "config/fp8_recipe.hpp"
#include "kernels/fp8/fp8_operand.hpp"
#include "kernels/fp8/fp8_round.hpp"

namespace forge::bench {

namespace {

struct Layer {
  const char* name;
  int64_t rows, out, in;  // y(rows, out) = x(rows, in) W(out, in)^T
  bool logits = false;    // the forward product is written in fp32
};

// An operand of a product of codes.
struct Coded {
  const ScaledOperand& scaled;
  View<const bf16, 2> x;
  View<float, 1> amax;
  View<std::uint8_t, 1> codes;

  Coded(const Bench& b, Memory& memory, const View<const bf16, 2>& of, const ScaledOperand& operand)
      : scaled(operand), x(of), amax(memory.zeros<float, 1>({{operand.groups()}})) {
    codes = memory.zeros<std::uint8_t, 1>({{code_bytes(operand, false)}});
    take_amax<bf16>(b.stream, x, operand, amax);
  }
  Fp8Input input() const { return {x, scaled, false, amax, codes}; }
};

// The forward product of codes beside that in bf16, and what making both operands' codes takes; with scales of blocks,
// and of one for all.
void bench_codes(const Bench& b, Memory& memory, const Layer& layer, Fp8Recipe recipe, const std::string& sizes,
                 double flop, const View<const bf16, 2>& x, const View<const bf16, 2>& w, const View<bf16, 2>& y) {
  BufferContext c;
  c.rounding.on = true;
  c.rounding.recipe = recipe;
  c.microbatch = {1, x.rows(), 1};
  const MatrixSplit split{whole_lines(w.rows()), whole_lines(w.columns())};
  ScaledProduct p = scaled_product(c, ProductOf::output, x.rows(), split, 0);
  add_code_bytes(p, c, ProductOf::output, x.rows(), split);
  const Coded of_x(b, memory, x, p.a), of_w(b, memory, w, p.b);
  const std::string name =
      std::string(layer.name) + ", forward, fp8 of " + (recipe == Fp8Recipe::block ? "blocks" : "tensors");
  const CodeScaling scaling = code_scaling(recipe);
  const auto factors = memory.zeros<float, 1>({{p.factors}});
  CodeOperands operands;
  const double encoding = seconds_of(b, [&] {
    operands = fp8_encode(b.stream, std::array{of_x.input(), of_w.input()}, false, scaling, factors)[0];
  });
  if (cublaslt_takes(scaling, y))
    print_row("products", name, sizes,
              seconds_of(b, [&] { b.gemm.code_product<bf16>(b.stream, operands, scaling, false, y); }), flop, 0);
  print_row("products", name + ", codes of x and W", sizes, encoding, 0,
            3.0 * static_cast<double>(x.size() + w.size()));
}

void bench_layer(const Bench& b, const Layer& layer) {
  const int64_t rows = b.size(layer.rows, 16), out = b.size(layer.out, 48), in = b.size(layer.in, 32);
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
  if (layer.logits) return;
  Deck deck;
  deck.train.precision = PrecisionName::fp8;
  for (const Fp8Recipe recipe : {Fp8Recipe::block, Fp8Recipe::delayed}) {
    deck.train.fp8_recipe = recipe;
    if (!multiplies_codes(deck, device_info().capability)) continue;
    bench_codes(b, memory, layer, recipe, sizes, flop, x_in, w_in, y);
  }
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
