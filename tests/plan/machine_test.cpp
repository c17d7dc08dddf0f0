#include "predict/machine.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "config/fp8_recipe.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "fp8/codes.hpp"
#include "plan/placement.hpp"
#include "predict/fit.hpp"
#include "predict/step_cost.hpp"

namespace forge::test {
namespace {

const std::string least = R"(
node: {ranks: 1, memory_mib: 100}
rows: {memory_gb_s: 1}
compute:
  fp32:
    table: {m: [1, 100], n: [1], k: [1], gflops: [1, 100]}
    attention: {processor: {tokens: [1], forward_tflops: [1], backward_tflops: [2]}}
)";

class MachineFile : public testing::Test {
 protected:
  std::string path_ =
      (std::filesystem::temp_directory_path() / ("machine_" + std::to_string(::getpid()) + ".yaml")).string();
  void TearDown() override { std::filesystem::remove(path_); }
  Machine read(const std::string& text) const {
    std::ofstream(path_) << text;
    return read_machine(path_);
  }
  std::string error_of(const std::string& text) const {
    try {
      read(text);
    } catch (const BadInput& e) {
      return e.what();
    }
    return "none";
  }
};

TEST_F(MachineFile, ShippedOnesAreRead) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("inputs/machines")) {
    const Machine m = read_machine(entry.path().stem().string());
    EXPECT_FALSE(m.description.empty()) << m.name;
    ++files;
  }
  EXPECT_EQ(files, 11);
  const Machine h100 = read_machine("h100_8_efa");
  EXPECT_EQ(h100.ranks_per_node, 8);
  EXPECT_EQ(h100.memory_bytes, std::size_t{81559} << 20);
  EXPECT_DOUBLE_EQ(h100.rates(DType::bf16).waves.peak, 989.4e12);
  EXPECT_EQ(h100.between_nodes.back().nodes, 64);
  EXPECT_DOUBLE_EQ(h100.between_nodes.back().bandwidth[to_size(Collective::all_gather)], 362e9);
}

TEST_F(MachineFile, ShippedProgramsAreRead) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("inputs/programs")) {
    const Program p = read_program(entry.path().stem().string());
    EXPECT_EQ(p.attention_kernel, "library") << p.name;
    EXPECT_NE(p.product_fraction, 1) << p.name;
    ++files;
  }
  EXPECT_EQ(files, 4);
  EXPECT_TRUE(read_program("nanotron").shards_at_once);
  EXPECT_FALSE(read_program("torchtitan").shards_at_once);
  std::ofstream(path_) << "host_forward_ms: 1\n";
  EXPECT_THROW(read_program(path_), BadInput);
}

TEST_F(MachineFile, TakesFromTheOneThatItIsLikeWhatItLacks) {
  const Machine h100 = read_machine("h100_8");
  const Machine m = read(
      "like: h100_8\nnode: {ranks: 4}\nrows: {memory_gb_s: 1000}\n"
      "collectives: {send: [{latency_us: 1, gb_s: 2}]}\n"
      "network: {nodes: [2], all_reduce: [1], all_gather: [2], reduce_scatter: [3], broadcast: [4], all_to_all: [5], "
      "send: [6]}\n");
  EXPECT_EQ(m.ranks_per_node, 4);
  EXPECT_DOUBLE_EQ(m.memory_bandwidth, 1e12);
  EXPECT_EQ(m.row_fraction, h100.row_fraction);
  EXPECT_EQ(m.memory_bytes, h100.memory_bytes);
  EXPECT_EQ(m.rates(DType::bf16).waves.peak, h100.rates(DType::bf16).waves.peak);
  ASSERT_EQ(m.in_node[to_size(Collective::send)].size(), 1u);
  EXPECT_DOUBLE_EQ(m.in_node[to_size(Collective::send)][0].bandwidth, 2e9);
  EXPECT_EQ(m.in_node[to_size(Collective::all_reduce)].size(), h100.in_node[to_size(Collective::all_reduce)].size());
  ASSERT_EQ(m.between_nodes.size(), 1u);
  EXPECT_DOUBLE_EQ(m.between_nodes[0].bandwidth[to_size(Collective::send)], 6e9);
  EXPECT_NE(error_of("like: " + path_ + "\n").find("leads in a circle"), std::string::npos);
  EXPECT_NE(error_of("like: nothing\n").find("no machine 'nothing'; legal: a file, or of"), std::string::npos);
  EXPECT_NE(error_of("like: h100_8\nrows: {memory_gb_s: -1}\n").find(":2:"), std::string::npos);
}

TEST_F(MachineFile, WrongOnesAreRefusedWithTheirPlace) {
  EXPECT_EQ(read(least).ranks_per_node, 1);
  EXPECT_NE(error_of(least + "nodes: 3\n").find(":8:1: unknown: nodes; legal: like, description, node"),
            std::string::npos)
      << error_of(least + "nodes: 3\n");
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = least;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_NE(error_of(with("ranks: 1", "ranks: 0")).find("node.ranks = '0': legal: a number, at least 1"),
            std::string::npos);
  EXPECT_NE(error_of(with("ranks: 1", "ranks: 1.5")).find("node.ranks must be a whole number"), std::string::npos);
  EXPECT_NE(error_of(with("ranks: 1", "ranks: 2")).find("collectives are missing"), std::string::npos);
  EXPECT_NE(error_of(with("[1, 100], n", "[100, 1], n")).find("table.m must ascend"), std::string::npos);
  EXPECT_NE(error_of(with("gflops: [1, 100]", "gflops: [1]")).find("a rate for each m, n and k: 2"), std::string::npos);
  EXPECT_NE(error_of(with("gflops:", "input_gradient_gflops: [1], gflops:"))
                .find("input_gradient_gflops must have a rate for each m, n and k: 2"),
            std::string::npos);
  EXPECT_NE(error_of(with("memory_gb_s: 1", "memory_gb_s: x")).find("rows.memory_gb_s = 'x': legal: a number"),
            std::string::npos);
  EXPECT_NE(error_of(with("compute:\n", "compute:\n  capability: sm_90\n"))
                .find("compute.capability = 'sm_90': legal: a number"),
            std::string::npos);
  EXPECT_NE(error_of("[1]").find("must be a map"), std::string::npos);
  try {
    read_machine("h100");
    FAIL();
  } catch (const BadInput& e) {
    EXPECT_NE(std::string(e.what()).find(
                  "no machine 'h100'; legal: a file, or of inputs/machines: a100_40_8, a100_8, b200_8"),
              std::string::npos)
        << e.what();
  }
}

TEST_F(MachineFile, RatesBetweenMeasuredOnes) {
  const Machine m = read(least);
  // 10 lies half way from 1 to 100.
  EXPECT_NEAR(product_seconds(m, DType::f32, ProductOf::output, 10, 5, 5), 2 * 10 * 25 / 10e9, 1e-15);
  EXPECT_NEAR(product_seconds(m, DType::f32, ProductOf::output, 1000, 1, 1, 3), 3 * 2 * 1000 / 100e9, 1e-15);
  EXPECT_NEAR(product_seconds(m, DType::f32, ProductOf::weight_gradient, 10, 5, 5), 2 * 10 * 25 / 10e9, 1e-15);
  std::string text = least;
  const Machine other = read(text.insert(text.find("gflops"), "weight_gradient_gflops: [2, 8], "));
  EXPECT_NEAR(product_seconds(other, DType::f32, ProductOf::weight_gradient, 10, 5, 5), 2 * 10 * 25 / 4e9, 1e-15);
  EXPECT_NEAR(product_seconds(other, DType::f32, ProductOf::input_gradient, 10, 5, 5), 2 * 10 * 25 / 10e9, 1e-15);
  EXPECT_NEAR(attention_seconds(m, DType::f32, "processor", {4e12, 17, 128, true}), 2, 1e-12);
  EXPECT_NEAR(row_seconds(m, 2e9), 2, 1e-12);
  EXPECT_THROW(product_seconds(m, DType::bf16, ProductOf::output, 1, 1, 1), BadInput);
  EXPECT_THROW(attention_seconds(m, DType::f32, "library", {1, 1, 128, false}), BadInput);
}

// Four waves of 132 tiles of 128 x 64 are faster here than one of 256 x 128; a row more is a wave more.
TEST(Machine, ProductsTakeWaves) {
  const Machine m = read_machine("h100_8");
  const WaveRates& w = m.rates(DType::bf16).waves;
  const double one = product_seconds(m, DType::bf16, ProductOf::output, 12 * 256, 11 * 128, 8192);
  EXPECT_NEAR(one, w.launch + 4 * (w.wave + 2. * 128 * 64 * 8192 / (w.peak / 132 * w.small)), 1e-9);
  EXPECT_LT(one, w.launch + w.wave + 2. * 256 * 128 * 8192 / (w.peak / 132 * w.large));
  EXPECT_GT(product_seconds(m, DType::bf16, ProductOf::output, 12 * 256 + 1, 11 * 128, 8192), 1.15 * one);
  // A row times a matrix takes as long as the matrix from memory.
  EXPECT_NEAR(product_seconds(m, DType::bf16, ProductOf::output, 1, 16384, 16384),
              w.launch + 2. * (16384. * 16384 + 2 * 16384) / (3350e9 * w.memory_fraction), 1e-9);
}

// Of 8-bit codes, in waves of 132 tiles of 128 x 64: with the machine's peak of them in place of bf16's; where there is
// none, bf16's.
TEST(Machine, ProductsOfCodesHaveTheirOwnPeak) {
  const Machine h100 = read_machine("h100_8"), b200 = read_machine("b200_8"), a100 = read_machine("a100_8");
  const auto seconds = [](const Machine& m, bool codes) {
    return product_seconds(m, DType::bf16, ProductOf::output, 8192, 8192, 8192, 1, codes);
  };
  const double launch = h100.rates(DType::bf16).waves.launch, wave = h100.rates(DType::bf16).waves.wave;
  const double waves = std::ceil(64 * 128 / 132.), bf16 = seconds(h100, false) - launch - waves * wave;
  EXPECT_NEAR(seconds(h100, true) - launch - waves * wave, bf16 * 989.4 / 1750, 1e-9);
  EXPECT_EQ(seconds(a100, true), seconds(a100, false));
  EXPECT_LT(seconds(b200, true), 0.6 * seconds(b200, false));
}

// What multiplies a deck's operands in FP8: cuBLASLt, their codes, where it has the recipe's scales.
TEST(Machine, CodesAreMultipliedWhereTheGpuAndTheRecipeAllowIt) {
  Deck deck;
  EXPECT_FALSE(multiplies_codes(deck, 90));
  deck.train.precision = PrecisionName::fp8;
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row, Fp8Recipe::block}) {
    deck.train.fp8_recipe = recipe;
    const bool whole = recipe == Fp8Recipe::current || recipe == Fp8Recipe::delayed;
    for (const int none : {0, 80, 86}) EXPECT_FALSE(multiplies_codes(deck, none));
    EXPECT_TRUE(multiplies_codes(deck, 90));
    for (const int scalar : {89, 100, 120}) EXPECT_EQ(multiplies_codes(deck, scalar), whole);
  }
  deck.train.fp8_carrier = Fp8Carrier::fp64;
  EXPECT_FALSE(multiplies_codes(deck, 90));
  for (const auto& [machine, capability] : {std::pair{"a100_8", 80},
                                            {"h100_8", 90},
                                            {"h100_8_efa", 90},
                                            {"h200_4", 90},
                                            {"b200_8", 100},
                                            {"gb200_72", 100}})
    EXPECT_EQ(read_machine(machine).capability, capability) << machine;
}

// An older cuBLAS is refused before a run, with the recipes that it has.
TEST(Machine, ScalesOfRowsAndBlocksAskForCublas12_9) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row, Fp8Recipe::block}) {
    const bool whole = recipe == Fp8Recipe::current || recipe == Fp8Recipe::delayed;
    for (const int newer : {120900, 120902, 130000}) EXPECT_EQ(refusal_of_scales(recipe, newer), "");
    for (const int older : {120400, 120805, 120899}) EXPECT_EQ(refusal_of_scales(recipe, older).empty(), whole);
    EXPECT_NE(refusal_of_scales(recipe, 0), "");
  }
  EXPECT_EQ(
      refusal_of_scales(Fp8Recipe::row, 120805),
      "train.fp8_recipe = row: this build's cuBLAS has no products with such scales; legal: current or delayed, or "
      "a build with CUDA 12.9 or later (docs/start.md)");
}

// All experts in one launch: rows in tiles of 128, by measured rates, or what fp32 sums take that memory moves.
TEST_F(MachineFile, ExpertsInOneLaunchHaveTheirRates) {
  const std::string experts =
      "like: h100_8\nrows: {memory_gb_s: 1000}\ncompute:\n  bf16:\n    experts:\n      cutlass: {rows: [512, 2048], "
      "output_tflops: [100, 400], input_gradient_tflops: [50, 50], weight_gradient_tflops: [25, 25]}\n";
  Machine m = read(experts);
  const auto seconds = [&](ProductOf of, double rows) {
    return expert_seconds(m, DType::bf16, "cutlass", of, 8, rows, 768, 2048).value_or(-1);
  };
  const double weights = 768. * 2048;
  EXPECT_NEAR(seconds(ProductOf::output, 512), 2 * 8 * 512 * weights / 100e12, 1e-12);
  EXPECT_NEAR(seconds(ProductOf::output, 1024), 2 * 8 * 1024 * weights / 200e12, 1e-12);
  EXPECT_NEAR(seconds(ProductOf::output, 4097), 2 * 8 * 4224 * weights / 400e12, 1e-12);
  EXPECT_NEAR(seconds(ProductOf::input_gradient, 2048), 2 * 8 * 2048 * weights / 50e12, 1e-12);
  EXPECT_NEAR(seconds(ProductOf::weight_gradient, 2000), 2 * 8 * 2000 * weights / 25e12, 1e-12);
  EXPECT_NEAR(seconds(ProductOf::weight_gradient, 2), 8 * (2 * 2 * (768 + 2048) + 8 * weights) / 1e12, 1e-12);
  EXPECT_FALSE(expert_seconds(m, DType::bf16, "tensor_cores", ProductOf::output, 8, 512, 768, 2048));
  m.program.name = "other";
  EXPECT_FALSE(expert_seconds(m, DType::bf16, "cutlass", ProductOf::output, 8, 512, 768, 2048));
  EXPECT_NE(error_of(experts + "      tensor_cores: {rows: [1], output_tflops: [1], input_gradient_tflops: [1]}\n")
                .find("compute.bf16.experts.tensor_cores: must have as many output_tflops"),
            std::string::npos);
  EXPECT_NE(
      error_of("like: h100_8\ncompute: {grouped: library}\n").find("grouped = 'library'; legal: tensor_cores, cutlass"),
      std::string::npos);
  EXPECT_FALSE(read("like: h100_8\ncompute: {grouped: tensor_cores}\n").has_cutlass);
  EXPECT_NE(error_of("like: h100_8\ncompute: {attention: cutlass}\n")
                .find("attention = 'cutlass'; legal: tensor_cores, cudnn"),
            std::string::npos);
}

// Rates of single kernels are of forge's.
TEST(Machine, KernelsOverRowsHaveTheirOwnRates) {
  Machine m = read_machine("h200_4");
  EXPECT_NEAR(row_seconds(m, 4.09e9, "swiglu_backward"), 1e-3 + 3e-6, 1e-12);
  EXPECT_NEAR(row_seconds(m, 4.8e9 * 0.845, "copy_rows"), 1e-3 + 3e-6, 1e-12);
  m.program.name = "other";
  EXPECT_NEAR(row_seconds(m, 4.8e9 * 0.4, "swiglu_backward"), 1e-3 + 3e-6, 1e-12);
}

// As forge calls it where that was measured; what cuDNN doesn't compute, tensor cores do.
TEST(Machine, AttentionByCudnnHasRatesOfItsOwn) {
  const Machine h200 = read_machine("h200_4");
  Deck deck;
  deck.train.precision = PrecisionName::bf16;
  deck.train.sequence_tokens = 4096;
  BufferContext buffers;
  ModelDeck& m = buffers.spec.options;
  m.heads = m.kv_heads = 32, m.head_dim = 128;
  buffers.microbatch = {2, 4096, 1};
  const auto kernel_on = [&](const Machine& machine, AttentionKernel asked) {
    buffers.kernels.attention = asked;
    return attention_kernel(machine, deck, buffers);
  };
  const Machine b200 = read_machine("b200_8");
  EXPECT_EQ(kernel_on(h200, AttentionKernel::cudnn), "cudnn");
  EXPECT_EQ(kernel_on(h200, AttentionKernel::automatic), "tensor_cores");
  EXPECT_EQ(kernel_on(h200, AttentionKernel::cuda_cores), "cuda_cores");
  EXPECT_EQ(kernel_on(b200, AttentionKernel::cudnn), "library");
  EXPECT_EQ(kernel_on(b200, AttentionKernel::automatic), "library");
  EXPECT_EQ(kernel_on(b200, AttentionKernel::tensor_cores), "tensor_cores");
  deck.machine.workspace_mib = 1;
  EXPECT_EQ(kernel_on(b200, AttentionKernel::automatic), "tensor_cores");
  EXPECT_NEAR(attention_seconds(h200, DType::bf16, "cudnn", {547e9, 4096, 128, false}), 1e-3 + 3e-6, 1e-12);
  deck.model.dropout = 0.1;
  EXPECT_EQ(kernel_on(h200, AttentionKernel::cudnn), "tensor_cores");
}

TEST(Machine, CollectivesTakeTheFastestProtocolAndTheNetwork) {
  Machine m = read_machine("h100_8_efa");
  m.network_per_rank = 35e-6;
  m.network_per_rank_byte = 0;
  const Sent call{Group::tp, Collective::all_gather, 1 << 20, DType::bf16, 2};
  const double bytes = 7. * 2 * (1 << 20);
  const Placement node{8, 1, 8, 1};
  double best = INFINITY;
  for (const ProtocolRates& p : m.in_node[to_size(Collective::all_gather)])
    best = std::min(best, p.latency + 8 * p.per_rank + bytes / p.bandwidth + (p.own > 0 ? bytes / 7 / p.own : 0));
  EXPECT_NEAR(collective_seconds(m, call, node), 2 * best, 1e-12);
  EXPECT_EQ(collective_seconds(m, call, {1, 1, 1, 8}), 0);
  // Eight groups of two nodes, with a rank in each, share what leaves a node.
  const Sent pair{Group::gradients, Collective::reduce_scatter, 1 << 24, DType::f32, 1};
  EXPECT_NEAR(collective_seconds(m, pair, {2, 2, 1, 8}), 40e-6 + 2 * 35e-6 + 4. * (1 << 24) * 8 / 362e9, 1e-9);
  // One group of them all: a ring that leaves each node once.
  EXPECT_NEAR(collective_seconds(m, pair, {16, 2, 8, 1}), 40e-6 + 16 * 35e-6 + 15 * 4. * (1 << 24) / 362e9, 1e-9);
  // 20 us more for each rank and each GB that leaves a node, of all its groups; a transfer is of two ranks, whatever pp
  // is.
  m.network_per_rank_byte = 20e-6 / 1e9;
  EXPECT_NEAR(collective_seconds(m, pair, {2, 2, 1, 8}),
              40e-6 + 2 * 35e-6 + 4. * (1 << 24) * 8 * (1 / 362e9 + 2 * 20e-15), 1e-9);
  EXPECT_NEAR(collective_seconds(m, pair, {16, 2, 8, 1}),
              40e-6 + 16 * 35e-6 + 15 * 4. * (1 << 24) * (1 / 362e9 + 16 * 20e-15), 1e-9);
  const Sent transfer{Group::pp, Collective::send, 1 << 24, DType::f32, 1};
  EXPECT_NEAR(collective_seconds(m, transfer, {16, 16, 1, 8}),
              40e-6 + 2 * 35e-6 + 4. * (1 << 24) * 8 * (1 / 362e9 + 2 * 20e-15), 1e-9);
}

// A rank copies its own part of what it gathers, sums or exchanges: one of eight equal parts of 8 MB.
TEST(Machine, CollectivesCopyTheRanksOwnPart) {
  Machine m = read_machine("h100_8");
  const std::int64_t part = 1 << 19;  // elements of 2 bytes
  const std::pair<Collective, std::int64_t> calls[] = {{Collective::all_gather, part},
                                                       {Collective::reduce_scatter, part},
                                                       {Collective::all_reduce, 8 * part},
                                                       {Collective::all_to_all, part},
                                                       {Collective::broadcast, 8 * part}};
  for (const auto& [collective, count] : calls) {
    const Sent call{Group::tp, collective, count, DType::bf16, 1};
    m.in_node[to_size(collective)] = {{0, 0, 100e9, 0}};
    const double sent = collective_seconds(m, call, {8, 1, 8, 1});
    m.in_node[to_size(collective)] = {{0, 0, 100e9, 50e9}};
    const double copied = collective == Collective::broadcast ? 0 : 2. * static_cast<double>(part) / 50e9;
    EXPECT_GT(sent, 50e-6);
    EXPECT_NEAR(collective_seconds(m, call, {8, 1, 8, 1}), sent + copied, 1e-12) << key_of(collective);
  }
}

TEST(Machine, GroupsLieOnNodes) {
  MeshShape mesh;
  mesh.pp = 2;
  mesh.dp_replicate = 2;
  mesh.dp_shard = 4;
  mesh.tp = 4;
  mesh.ep = 8;
  mesh.etp = 1;
  mesh.edp = 4;
  const auto places = placements(mesh, 0, {}, 8);
  const auto expect = [&](Group group, Placement wanted) {
    const Placement& p = places[to_size(group)];
    EXPECT_EQ(p.ranks, wanted.ranks) << name_of(group);
    EXPECT_EQ(p.nodes, wanted.nodes) << name_of(group);
    EXPECT_EQ(p.near, wanted.near) << name_of(group);
    EXPECT_EQ(p.groups, wanted.groups) << name_of(group);
  };
  expect(Group::tp, {4, 1, 4, 2});
  expect(Group::pp, {2, 2, 1, 8});
  expect(Group::gradient_shards, {4, 2, 2, 4});
  expect(Group::gradient_replicas, {2, 2, 1, 8});
  expect(Group::gradients, {8, 4, 2, 4});
  expect(Group::ep, {8, 1, 8, 1});
  expect(Group::expert_gradients, {4, 4, 1, 8});
  expect(Group::scalars, {64, 8, 8, 1});
}

// Calls of another cluster, whose all-gathers are slower inside nodes, whose sums are faster between them, and whose
// network has more latency: the fit finds it, and leaves what no call tells.
TEST(Machine, IsFittedToCalls) {
  const Machine m = read_machine("h100_8");
  Machine other = m;
  constexpr auto gather = to_size(Collective::all_gather), sum = to_size(Collective::all_reduce),
                 send = to_size(Collective::send);
  for (ProtocolRates& rates : other.in_node[gather]) {
    rates.latency *= 3;
    rates.per_rank *= 3;
    rates.bandwidth /= 20;
    rates.own /= 20;
  }
  for (NodesRates& rates : other.between_nodes) rates.bandwidth[sum] *= 0.3;
  other.network_latency *= 2;
  other.network_per_rank *= 2;
  std::vector<CallTime> calls;
  for (const Collective collective : {Collective::all_gather, Collective::all_reduce})
    for (const Placement& place : {Placement{8, 1, 8, 1}, Placement{4, 1, 4, 2}, Placement{4, 4, 1, 8}})
      for (const std::int64_t count : {100, 10'000, 1'000'000, 100'000'000}) {
        const Sent call{Group::tp, collective, count, DType::bf16};
        calls.push_back({call, place, collective_seconds(other, call, place)});
      }
  const Machine fitted = fit_calls(m, calls);
  for (const CallTime& c : calls)
    EXPECT_NEAR(collective_seconds(fitted, c.call, c.place) / c.seconds, 1, 0.01)
        << key_of(c.call.collective) << " of " << c.call.count << " on " << c.place.nodes;
  EXPECT_NEAR(fitted.network_latency / other.network_latency, 1, 0.01);
  EXPECT_NEAR(fitted.between_nodes[0].bandwidth[sum] / other.between_nodes[0].bandwidth[sum], 1, 0.01);
  EXPECT_EQ(fitted.in_node[send][0].bandwidth, m.in_node[send][0].bandwidth);
  EXPECT_EQ(fitted.between_nodes[0].bandwidth[send], m.between_nodes[0].bandwidth[send]);
}

}  // namespace
}  // namespace forge::test
