#include <string>
#include <utility>

#include "config/kernel_choice.hpp"
#include "small_deck.hpp"

// What kernels on a GPU are taken, and what those that are asked for are held against.

namespace forge {
namespace {

using test::checked;
using test::expect_bad_input;

// Held to the rules with kernels that are asked for.
template <class Change>
void check_asked(Change&& change, const KernelChoice& asked) {
  Report report;
  check_kernels(checked(change), asked, report);
  report.throw_if_any("the deck");
}
template <class Change>
void expect_asked_refused(Change&& change, const KernelChoice& asked, std::initializer_list<const char*> parts) {
  expect_bad_input([&] { check_asked(change, asked); }, parts);
}
constexpr KernelChoice attention_by(AttentionKernel kernel) {
  return {.attention = kernel};
}
constexpr KernelChoice experts_by(GroupedProducts products) {
  return {.grouped = products};
}

TEST(AskedKernels, AreWordsOfTheEnvironment) {
  using enum AttentionKernel;
  for (const char* nothing : {static_cast<const char*>(nullptr), "", "automatic"}) {
    const KernelChoice choice = kernel_choice(nothing, nothing);
    EXPECT_EQ(choice.attention, automatic);
    EXPECT_EQ(choice.grouped, GroupedProducts::automatic);
  }
  EXPECT_EQ(kernel_choice("cuda_cores", nullptr).attention, cuda_cores);
  EXPECT_EQ(kernel_choice("tensor_cores", nullptr).attention, tensor_cores);
  EXPECT_EQ(kernel_choice("cudnn", nullptr).attention, cudnn);
  EXPECT_EQ(kernel_choice(nullptr, "library").grouped, GroupedProducts::library);
  EXPECT_EQ(kernel_choice(nullptr, "tensor_cores").grouped, GroupedProducts::tensor_cores);
  EXPECT_EQ(kernel_choice(nullptr, "cutlass").grouped, GroupedProducts::cutlass);
  expect_bad_input([] { kernel_choice("tensor", nullptr); },
                   {"FORGE_ATTENTION = ", "tensor", "legal: automatic, cuda_cores, tensor_cores, cudnn"});
  expect_bad_input([] { kernel_choice(nullptr, "cuda_cores"); },
                   {"FORGE_GROUPED = ", "cuda_cores", "legal: automatic, library, tensor_cores, cutlass"});
}

TEST(AskedKernels, TensorCoresComputeInBf16) {
  using enum AttentionKernel;
  const auto deck = [](PrecisionName precision) { return [=](Deck& d) { d.train.precision = precision; }; };
  for (const PrecisionName precision : {PrecisionName::fp64, PrecisionName::fp32})
    expect_asked_refused(deck(precision), attention_by(tensor_cores),
                         {"FORGE_ATTENTION = tensor_cores", "legal: automatic, cuda_cores, or precision bf16"});
  EXPECT_NO_THROW(check_asked(deck(PrecisionName::bf16), attention_by(tensor_cores)));
  expect_asked_refused([&](Deck& d) { deck(PrecisionName::bf16)(d), d.model.attention_soft_cap = 50; },
                       attention_by(tensor_cores),
                       {"FORGE_ATTENTION = tensor_cores with model.attention_soft_cap = 50"});
  expect_asked_refused([&](Deck& d) { deck(PrecisionName::fp8)(d), d.train.fp8_carrier = Fp8Carrier::fp64; },
                       attention_by(tensor_cores), {"FORGE_ATTENTION = tensor_cores", "FORGE_FP8_CARRIER = bf16"});
}

TEST(AskedKernels, CudnnComputesInBf16Too) {
  using enum AttentionKernel;
  const auto deck = [](PrecisionName precision) { return [=](Deck& d) { d.train.precision = precision; }; };
  expect_asked_refused(deck(PrecisionName::fp32), attention_by(cudnn),
                       {"FORGE_ATTENTION = cudnn without train.precision = bf16"});
  EXPECT_NO_THROW(check_asked(deck(PrecisionName::bf16), attention_by(cudnn)));
  EXPECT_NO_THROW(check_asked(deck(PrecisionName::fp8), attention_by(cudnn)));
  expect_asked_refused([&](Deck& d) { deck(PrecisionName::bf16)(d), d.model.attention_soft_cap = 50; },
                       attention_by(cudnn), {"FORGE_ATTENTION = cudnn with model.attention_soft_cap = 50"});
}

TEST(ChosenKernels, AutomaticAttentionIsByTensorCoresWhereTheyAreLegal) {
  using enum AttentionKernel;
  const auto chosen = [](PrecisionName precision, double soft_cap) {
    return chosen_attention(
        checked([&](Deck& d) { d.train.precision = precision, d.model.attention_soft_cap = soft_cap; }), automatic);
  };
  EXPECT_EQ(chosen(PrecisionName::bf16, 0), tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::fp8, 0), tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::bf16, 50), cuda_cores);
  EXPECT_EQ(chosen(PrecisionName::fp32, 0), cuda_cores);
  EXPECT_EQ(chosen(PrecisionName::fp64, 0), cuda_cores);
  const Deck bf16 = checked([](Deck& d) { d.train.precision = PrecisionName::bf16; });
  EXPECT_EQ(chosen_attention(bf16, cuda_cores), cuda_cores);
}

TEST(AskedKernels, GroupedProductsAreOfExpertsInBf16) {
  const auto deck = [](PrecisionName precision, std::int64_t experts) {
    return [=](Deck& d) {
      d.train.precision = precision, d.model.experts = experts, d.model.experts_per_token = experts / 2;
    };
  };
  const KernelChoice one_launch = experts_by(GroupedProducts::tensor_cores);
  for (const PrecisionName precision : {PrecisionName::fp64, PrecisionName::fp32})
    expect_asked_refused(deck(precision, 4), one_launch,
                         {"FORGE_GROUPED = tensor_cores", "legal: automatic, library, or precision bf16"});
  for (const PrecisionName precision : {PrecisionName::bf16, PrecisionName::fp8})
    EXPECT_NO_THROW(check_asked(deck(precision, 4), one_launch));
  expect_asked_refused(deck(PrecisionName::bf16, 0), one_launch,
                       {"FORGE_GROUPED = tensor_cores without model.experts"});
  const KernelChoice cutlass = experts_by(GroupedProducts::cutlass);
  const auto with_workspace = [&](std::int64_t mib) {
    return [=](Deck& d) { deck(PrecisionName::bf16, 4)(d), d.machine.workspace_mib = mib; };
  };
  EXPECT_NO_THROW(check_asked(with_workspace(1), cutlass));
  expect_asked_refused(deck(PrecisionName::fp32, 4), cutlass,
                       {"FORGE_GROUPED = cutlass without train.precision = bf16"});
  expect_asked_refused(with_workspace(0), cutlass,
                       {"FORGE_GROUPED = cutlass with machine.workspace_mib = 0", "legal: workspace_mib 1 or more"});
  expect_asked_refused([&](Deck& d) { deck(PrecisionName::fp8, 4)(d), d.train.fp8_carrier = Fp8Carrier::fp64; },
                       one_launch, {"FORGE_GROUPED = tensor_cores", "FORGE_FP8_CARRIER = bf16"});
}

TEST(ChosenKernels, AutomaticProductsOfSmallExpertsAreGrouped) {
  const auto chosen = [](PrecisionName precision, std::int64_t experts, std::int64_t width, std::int64_t ffn,
                         GroupedProducts asked = GroupedProducts::automatic) {
    const Deck deck = checked([&](Deck& d) {
      d.train.precision = precision, d.model.width = width, d.model.expert_ffn = experts > 0 ? ffn : 0;
      d.model.experts = experts, d.model.experts_per_token = experts / 2;
    });
    return chosen_grouped_products(deck, asked);
  };
  EXPECT_EQ(chosen(PrecisionName::bf16, 4, 2048, 768), GroupedProducts::tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::fp8, 4, 2048, 768), GroupedProducts::tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::bf16, 4, 4096, 4095), GroupedProducts::tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::bf16, 4, 4096, 4096), GroupedProducts::library);
  EXPECT_EQ(chosen(PrecisionName::bf16, 0, 2048, 768), GroupedProducts::library);
  EXPECT_EQ(chosen(PrecisionName::fp32, 4, 2048, 768), GroupedProducts::library);
  EXPECT_EQ(chosen(PrecisionName::fp64, 4, 2048, 768), GroupedProducts::library);
  EXPECT_EQ(chosen(PrecisionName::bf16, 4, 2048, 768, GroupedProducts::library), GroupedProducts::library);
}

}  // namespace
}  // namespace forge
