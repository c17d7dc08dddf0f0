#include "bench.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "kernels/experts/grouped_cutlass.hpp"

namespace forge::bench {

namespace {

struct Layer {
  const char* name;
  int64_t rows, experts, chosen, width, ffn;
};

// The choice of a router that prefers some experts: logits of every row are normal numbers of deviation 1, and every
// expert has an offset of deviation 1/2. The busiest of 128 experts then gets about three times the mean.
std::vector<float> uneven_logits(int64_t rows, int64_t experts) {
  std::vector<float> logits(static_cast<std::size_t>(rows * experts));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t e = 0; e < experts; ++e)
      logits[static_cast<std::size_t>(r * experts + e)] = static_cast<float>(
          normal(1, static_cast<std::uint64_t>(r * experts + e)) + 0.5 * normal(2, static_cast<std::uint64_t>(e)));
  return logits;
}

struct Routing {
  View<float, 2> weights;
  View<std::int32_t, 2> place;
  View<std::int32_t, 1> order;
  std::vector<int64_t> offsets;  // on the host
};

// Routes, and measures routing.
Routing route(const Bench& b, Memory& memory, const Layer& n, const std::string& sizes) {
  const auto flat = memory.values(uneven_logits(n.rows, n.experts));
  const View<const float, 2> logits(flat.data, {{n.rows, n.experts}});
  const auto scores = memory.zeros<float, 2>({{n.rows, n.experts}});
  const auto experts = memory.zeros<std::int32_t, 2>({{n.rows, n.chosen}});
  const int64_t pairs = n.rows * n.chosen;
  const auto sort = memory.zeros<std::int32_t, 2>({{moe_sort_rows(pairs), n.experts}});
  const auto counts = memory.zeros<int64_t, 1>({{n.experts}}), offsets = memory.zeros<int64_t, 1>({{n.experts + 1}});
  Routing r;
  r.weights = memory.zeros<float, 2>({{n.rows, n.chosen}});
  r.place = memory.zeros<std::int32_t, 2>({{n.rows, n.chosen}});
  r.order = memory.zeros<std::int32_t, 1>({{pairs}});
  RouterOptions options;
  options.experts = n.experts;
  options.chosen = n.chosen;
  options.renormalise = true;
  const double seconds = seconds_of(b, [&] {
    router_forward<float>(b.stream, options, logits, View<const float, 1>(), r.weights, experts, scores);
    moe_sort(b.stream, experts, sort, counts, offsets, r.order, r.place);
  });
  print_row("experts", std::string(n.name) + ", router and sort", sizes, seconds, 0, 0);
  r.offsets.resize(static_cast<std::size_t>(n.experts + 1));
  copy_to_host(b.stream, r.offsets.data(), offsets.data, r.offsets.size() * sizeof(int64_t));
  b.stream.synchronize();
  return r;
}

void bench_moving(const Bench& b, Memory& memory, const Layer& n, const Routing& r, View<bf16, 2> rows,
                  const std::string& sizes) {
  const auto x = memory.random<bf16, 2>({{n.rows, n.width}});
  const double moved = 2.0 * static_cast<double>((n.rows + n.rows * n.chosen) * n.width);
  const auto row = [&](const char* kernel, double seconds) {
    print_row("experts", std::string(n.name) + ", " + kernel, sizes, seconds, 0, moved);
  };
  row("permute", seconds_of(b, [&] { permute_rows<bf16>(b.stream, x, r.order, n.chosen, rows); }));
  row("unpermute", seconds_of(b, [&] { unpermute_rows<bf16>(b.stream, rows, r.place, 0, r.weights, false, x); }));
}

// The products of all experts: gate and up, and down.
void bench_products_of(const Bench& b, Memory& memory, const Layer& n, const std::vector<int64_t>& offsets,
                       View<bf16, 2> rows, const std::string& kind, const std::string& sizes) {
  const int64_t E = n.experts, P = n.rows * n.chosen, C = n.width, F = n.ffn;
  const auto up = memory.random<bf16, 3>({{E, 2 * F, C}}, 0.02), down = memory.random<bf16, 3>({{E, C, F}}, 0.02);
  const auto d_up = memory.zeros<float, 3>({{E, 2 * F, C}}), d_down = memory.zeros<float, 3>({{E, C, F}});
  const auto gate_up = memory.random<bf16, 2>({{P, 2 * F}}), act = memory.random<bf16, 2>({{P, F}});
  const auto out = memory.random<bf16, 2>({{P, C}});
  const double flop = 2.0 * static_cast<double>(P) * 3 * static_cast<double>(C * F);
  const auto row = [&](const std::string& pass, double seconds) {
    print_row("experts", std::string(n.name) + ", " + kind + ", " + pass, sizes, seconds, flop, 0);
  };
  Gemm& gemm = b.gemm;
  row("weight gradient", seconds_of(b, [&] {
        gemm.grouped_sums<bf16, float>(b.stream, offsets, 1.0, out, act, 1.0, d_down);
        gemm.grouped_sums<bf16, float>(b.stream, offsets, 1.0, gate_up, rows, 1.0, d_up);
      }));
  row("forward", seconds_of(b, [&] {
        gemm.grouped_rows<bf16, bf16>(b.stream, offsets, Transpose::yes, 1.0, rows, up, 0.0, gate_up);
        gemm.grouped_rows<bf16, bf16>(b.stream, offsets, Transpose::yes, 1.0, act, down, 0.0, out);
      }));
  row("input gradient", seconds_of(b, [&] {
        gemm.grouped_rows<bf16, bf16>(b.stream, offsets, Transpose::no, 1.0, out, down, 0.0, act);
        gemm.grouped_rows<bf16, bf16>(b.stream, offsets, Transpose::no, 1.0, gate_up, up, 0.0, rows);
      }));
  if (std::string(device_info().kind) == "cpu") return;
  // The same by the kernels that compute all experts in one launch.
  const RowGroups groups{E, memory.values(offsets).data, 0, P};
  const auto grouped = [&](Gemm& by, const std::string& choice) {
    row("weight gradient, " + choice, seconds_of(b, [&] {
          by.grouped_sums<bf16>(b.stream, groups, out, act, true, d_down);
          by.grouped_sums<bf16>(b.stream, groups, gate_up, rows, true, d_up);
        }));
    row("forward, " + choice, seconds_of(b, [&] {
          by.grouped_rows<bf16>(b.stream, groups, Transpose::yes, rows, up, gate_up);
          by.grouped_rows<bf16>(b.stream, groups, Transpose::yes, act, down, out);
        }));
    row("input gradient, " + choice, seconds_of(b, [&] {
          by.grouped_rows<bf16>(b.stream, groups, Transpose::no, out, down, act);
          by.grouped_rows<bf16>(b.stream, groups, Transpose::no, gate_up, up, rows);
        }));
  };
  grouped(gemm, "tensor_cores");
  if (!cutlass_built_in() || std::string(device_info().features) != "sm_90") return;
  const auto workspace = memory.zeros<float, 1>({{1 << 18}});
  Gemm by_cutlass(workspace.data, 1 << 20, true);
  grouped(by_cutlass, "cutlass");
}

// For peer_kernels.py: the rows of each expert.
void print_counts(const std::string& name, const std::vector<int64_t>& offsets) {
  std::printf("# rows of experts\t%s\t", name.c_str());
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e)
    std::printf(" %ld", static_cast<long>(offsets[e + 1] - offsets[e]));
  std::printf("\n");
}

}  // namespace

// Layers with experts on 8192 tokens, with the rows that an uneven router gives, and with as many rows for each expert.
void bench_experts(const Bench& b) {
  const std::vector<Layer> layers = b.tiny ? std::vector<Layer>{{"tiny", 32, 8, 2, 16, 24}}
                                           : std::vector<Layer>{{"Qwen3-30B-A3B", 8192, 128, 8, 2048, 768},
                                                                {"Mixtral-8x7B", 8192, 8, 2, 4096, 14336}};
  for (const Layer& n : layers) {
    const auto sized = [&](const std::vector<int64_t>& offsets) {
      int64_t busiest = 0;
      for (std::size_t e = 0; e + 1 < offsets.size(); ++e) busiest = std::max(busiest, offsets[e + 1] - offsets[e]);
      return word("rows", n.rows) + " " + word("E", n.experts) + " " + word("k", n.chosen) + " " + word("C", n.width) +
             " " + word("F", n.ffn) + " " + word("busiest", busiest);
    };
    std::vector<int64_t> even(static_cast<std::size_t>(n.experts + 1));
    for (int64_t e = 0; e <= n.experts; ++e) even[static_cast<std::size_t>(e)] = e * n.rows * n.chosen / n.experts;
    Memory memory(b.stream);
    const Routing routing = route(b, memory, n, sized(even));
    const auto rows = memory.random<bf16, 2>({{n.rows * n.chosen, n.width}});
    bench_moving(b, memory, n, routing, rows, sized(routing.offsets));
    for (const bool balanced : {false, true}) {
      Memory of_products(b.stream);
      const std::vector<int64_t>& offsets = balanced ? even : routing.offsets;
      print_counts(std::string(n.name) + (balanced ? ", balanced" : ", uneven"), offsets);
      bench_products_of(b, of_products, n, offsets, rows, balanced ? "balanced" : "uneven", sized(offsets));
    }
  }
}

}  // namespace forge::bench
