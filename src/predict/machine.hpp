#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/collectives.hpp"
#include "core/types.hpp"
#include "fp8/scaled_product.hpp"
#include "plan/placement.hpp"

namespace forge {

// The speeds of a cluster, or of this machine. Read from a file (inputs/machines), which has a source for each figure;
// times are seconds, rates per second.

// Matrix products of a GPU: the tiles of the result are computed in waves, one tile a multiprocessor at a time, by
// whichever size of tile is fastest; never faster than their operands come from memory.
struct WaveRates {
  double peak = 0;                          // FLOP/s of all units
  double launch = 0, wave = 0;              // seconds of a product, of each wave besides its FLOPs
  double large = 0, medium = 0, small = 0;  // fraction of the peak in tiles of 256 x 128, 128 x 128, 128 x 64
  double memory_fraction = 0;               // of the memory's bandwidth
};

// Matrix products that were measured: rates at all combinations of three lists of extents. Between them the logarithm
// of the rate is linear in the logarithms of the extents; beyond, it stays.
struct ProductTable {
  std::vector<double> m, n, k;  // ascending
  // FLOP/s by ProductOf, whose operands lie differently in memory, then by m, n, k, the last fastest. The first is used
  // where another is empty.
  std::array<std::vector<double>, 3> rates;
  double launch = 0;
};

// FLOP/s of attention by the length of a sequence, over visible pairs of query and key, with heads of 128 columns; and
// fractions of them by a head's columns, of its keys and its values in the mean (none: all heads have these rates).
struct AttentionRates {
  std::vector<double> tokens, forward, backward;
  std::vector<double> columns = {}, forward_fraction = {}, backward_fraction = {};
};

// FLOP/s of products of all experts in one launch, by the rows of an expert.
struct ExpertRates {
  std::vector<double> rows;
  std::array<std::vector<double>, 3> rates;  // by ProductOf
};

// A rank's rates in one of the types.
struct ComputeRates {
  WaveRates waves;  // peak 0: the table is used
  ProductTable table;
  std::map<std::string, AttentionRates, std::less<>> attention;  // by kernel
  std::map<std::string, ExpertRates, std::less<>> experts;       // by kernel
  // FLOP/s of cuBLASLt's products of 8-bit codes: a peak that takes the place of the type's, with the fractions of its
  // tiles; 0: not known, such products are as fast as the type's.
  double code_peak = 0;
  bool known() const { return waves.peak > 0 || !table.rates[0].empty(); }
};

// A collective by one protocol: latency + per_rank · ranks + bytes / bandwidth + part / own, where bytes are those that
// a rank sends, and part is one of the group's equal parts of the data: the rank's own, which isn't sent but copied.
struct ProtocolRates {
  double latency = 0, per_rank = 0, bandwidth = 0;
  double own = 0;  // bandwidth of the copy; 0: it takes no time
};

// Between nodes: bytes that leave and enter a node, when so many nodes take part.
struct NodesRates {
  int nodes = 2;
  std::array<double, collective_count> bandwidth{};
};

// The clock that a GPU's limit of power leaves products and attention, as a fraction of the clock of their rates, by
// the fraction of the peak that a step reaches at those rates; none: it stays.
struct PowerLimit {
  std::vector<double> fractions, clocks;
};

// A kernel over rows that was measured by itself (its name: nn/segments.plan.hpp).
struct KernelRates {
  double launch = 0, bandwidth = 0;
};

// Bytes of other programs count with 0.4 of the memory's bandwidth: by it they are fitted, so that it is their unit.
inline constexpr double program_row_fraction = 0.4;

// How a program uses a machine where it isn't forge: `forge plan --as`, for predictions of published runs. Neutral
// values are forge's. Every other one has its cause in the program's file (inputs/programs).
struct Program {
  std::string name = "forge";
  std::string text = {};  // of its file
  bool is_forge() const { return name == "forge"; }
  double product_fraction = 1;    // of the machine's rates of products
  std::string attention_kernel;   // of those that the machine's file has rates of; "": the deck's
  double attention_fraction = 1;  // of its rates
  double score_bytes = 0;         // of each element of a T x T score matrix, in each pass: attention that is not fused
  double logit_bytes = 0;         // of each logit, in all: a loss that is not fused
  double row_traffic = 1;         // bytes of kernels over rows, of forge's: kernels that are not fused
  double tp_traffic = 1;          // of forge's tensor-parallel collectives, which gather again for backward
  double tp_wait = 0;             // seconds of each of them, besides: for the last of its ranks
  double accumulate_bytes = 0;    // of each parameter, in each microbatch: gradients that are added to fp32 sums
  double host_forward = 0, host_backward = 0;  // seconds of the host for a layer's pass, besides
  double host_collective = 0;                  // and for each of its collectives
  double host_pipeline = 0;      // and for each rank of a tensor-parallel one, where stages are on several nodes
  double transfer = 0;           // seconds of the compute stream for each transfer between stages, besides
  double optimizer_bytes = 0;    // of each parameter that a rank updates; 0: forge's
  double step = 0;               // seconds of a step, besides
  double activation_memory = 1;  // of the bytes that forge keeps for backward; at least 1
  double gradient_memory = 0;    // bytes of each parameter of a rank, besides forge's
  bool gradients_behind = true;  // whether replicas' sums of gradients run behind backward
  // Whether ZeRO 1 sums the gradients of all units in one all-reduce when backward has ended, and gathers all
  // parameters in one call when they are updated, and waits for both; ZeRO 2 and 3 then wait for each of their
  // collectives.
  bool shards_at_once = false;
};

// Range of the two factors below.
inline constexpr double least_speed = 0.01, most_speed = 100;

struct Machine {
  std::string name, description;
  std::string text = {};  // of its file, behind those that it is like
  int ranks_per_node = 1;
  int units = 1;                 // multiprocessors of a rank's GPU
  int capability = 0;            // its compute capability, 90 of sm_90; 0: a processor, or not known
  int cores_per_node = 0;        // that the ranks of a node share; 0: each has a processor of its own
  std::size_t memory_bytes = 0;  // of a rank's GPU; with cores, of the node
  double memory_bandwidth = 0;   // of a rank
  double row_fraction = 1;       // of it that forge's kernels over rows reach
  double row_launch = 0;         // seconds of a kernel over rows besides its bytes
  double host_launch = 0;        // seconds of the host for each kernel, product or collective
  double step_seconds = 0;       // of the host between two steps
  double overlap_speed = 1;      // of kernels while a collective runs behind them
  double compute_speed = 1;      // of products, attention and rows: a factor of the rates below
  double clock = 1;              // of products and attention: another one, by `power` (predict)
  PowerLimit power;
  double network_speed = 1;    // of collectives, inside nodes and between them
  double uncertainty = 0.3;    // of a predicted step, as a fraction of it
  double imbalance = 1;        // rows of the busiest ranks' experts over the mean (forge plan --imbalance)
  bool has_cutlass = false;    // CUTLASS's kernels take the place of tensor_cores' for all experts in one launch
  bool prefers_cudnn = false;  // cuDNN takes the place of tensor_cores for attention where it is legal
  std::map<std::string, KernelRates, std::less<>> kernels;
  Program program;
  std::array<ComputeRates, 3> compute;                               // fp64, fp32, bf16
  std::array<std::vector<ProtocolRates>, collective_count> in_node;  // the fastest is taken
  double network_latency = 0, network_per_rank = 0;  // seconds of a collective over nodes, for each of its ranks more
  double network_per_rank_byte = 0;                  // and for each byte that leaves a node times each of its ranks
  std::vector<NodesRates> between_nodes;             // by ascending nodes; empty: one node is all

  bool has_rates(DType type) const;
  const ComputeRates& rates(DType type) const;
  // FLOP/s that fractions of the peak are of: the data sheet's, or the best that was measured.
  double peak(DType type) const;
};

// GPUs by name: the memory that the driver reports, the machine of inputs/machines that has them, and their compute
// capability.
struct Gpu {
  const char* name;
  std::size_t mib;
  const char* machine;
  int capability;
};
inline constexpr Gpu gpus[] = {{"h100-80", 81559, "h100_8", 90},
                               {"h200-141", 143771, "h200_4", 90},
                               {"a100-80", 81920, "a100_8", 80},
                               {"b200-180", 183359, "b200_8", 100}};

// Reads a machine's file; `name` is a path, the name of a file in inputs/machines ("h100_8"; config/shared_files.hpp
// says where that is looked for), or of a GPU. Throws one BadInput for all that is wrong, each with file:line:column.
Machine read_machine(const std::string& name);

// "all_reduce": a collective's name in these files.
std::string key_of(Collective collective);

// Its clock in a step that reaches such a fraction of the peak.
double clock_at(const Machine& machine, double fraction);

// Reads a program's file; `name` as a machine's, in inputs/programs.
Program read_program(const std::string& name);

// Seconds of one product (m, k) (k, n); `count` of them one after the other. `codes`: of 8-bit codes.
double product_seconds(const Machine& machine, DType type, ProductOf of, double m, double n, double k, double count = 1,
                       bool codes = false);
// Seconds of products of so many experts in one launch by a kernel, of `rows` rows each with weights (n, k), or of the
// sums of such weights; nothing where the file has no rates of it.
std::optional<double> expert_seconds(const Machine& machine, DType type, std::string_view kernel, ProductOf of,
                                     double experts, double rows, double n, double k);
// Attention over visible pairs of sequences of `tokens`, with heads of so many columns.
struct AttentionWork {
  double flops, tokens, columns;
  bool backward;
};
// Its seconds by one of the kernels that the file has rates of.
double attention_seconds(const Machine& machine, DType type, std::string_view kernel, const AttentionWork& work);
// Seconds of a kernel that reads and writes so many bytes; `name`: at its own rates, where forge's has some.
double row_seconds(const Machine& machine, double bytes, std::string_view name = {});

// Seconds of a collective that is alone: a latency, in which it needs no link, and the time of its bytes, in which it
// needs the links of the rank's node and its fraction of the node's network for so many.
struct WireTime {
  double latency = 0, seconds = 0, nvlink = 0, nic = 0;
  double total() const { return latency + seconds; }
};
// The time of one call; `count` and type as the call takes them (core/collectives.hpp).
WireTime collective_time(const Machine& machine, const Sent& call, const Placement& place);
inline double collective_seconds(const Machine& machine, const Sent& call, const Placement& place) {
  return collective_time(machine, call, place).total();
}

}  // namespace forge
