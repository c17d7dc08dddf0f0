#include <string>
#include <utility>

#include "config/attention_kernel.hpp"
#include "config/grouped_products.hpp"
#include "small_deck.hpp"

// What the keys of kernels on a GPU are held against.

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

TEST(CheckMachine, TensorCoresComputeInBf16) {
  const auto deck = [](PrecisionName precision) {
    return [=](Deck& d) { d.train.precision = precision, d.machine.attention = AttentionKernel::tensor_cores; };
  };
  for (const PrecisionName precision : {PrecisionName::fp64, PrecisionName::fp32})
    expect_refused(deck(precision),
                   {"machine.attention = tensor_cores", "legal: automatic, cuda_cores, or precision bf16"});
  EXPECT_NO_THROW(checked(deck(PrecisionName::bf16)));
  expect_refused([&](Deck& d) { deck(PrecisionName::bf16)(d), d.model.attention_soft_cap = 50; },
                 {"machine.attention = tensor_cores with model.attention_soft_cap = 50"});
}

TEST(CheckMachine, CudnnComputesInBf16Too) {
  const auto deck = [](PrecisionName precision) {
    return [=](Deck& d) { d.train.precision = precision, d.machine.attention = AttentionKernel::cudnn; };
  };
  expect_refused(deck(PrecisionName::fp32), {"machine.attention = cudnn without train.precision = bf16"});
  EXPECT_NO_THROW(checked(deck(PrecisionName::bf16)));
  EXPECT_NO_THROW(checked(deck(PrecisionName::fp8)));
  expect_refused([&](Deck& d) { deck(PrecisionName::bf16)(d), d.model.attention_soft_cap = 50; },
                 {"machine.attention = cudnn with model.attention_soft_cap = 50"});
}

TEST(CheckMachine, AutomaticAttentionIsByTensorCoresWhereTheyAreLegal) {
  const auto chosen = [](PrecisionName precision, double soft_cap) {
    return chosen_attention(
        checked([&](Deck& d) { d.train.precision = precision, d.model.attention_soft_cap = soft_cap; }));
  };
  EXPECT_EQ(chosen(PrecisionName::bf16, 0), AttentionKernel::tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::fp8, 0), AttentionKernel::tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::bf16, 50), AttentionKernel::cuda_cores);
  EXPECT_EQ(chosen(PrecisionName::fp32, 0), AttentionKernel::cuda_cores);
  EXPECT_EQ(chosen(PrecisionName::fp64, 0), AttentionKernel::cuda_cores);
  Deck deck = checked([](Deck& d) { d.machine.attention = AttentionKernel::cuda_cores; });
  EXPECT_EQ(chosen_attention(deck), AttentionKernel::cuda_cores);
}

TEST(CheckMachine, GroupedProductsAreOfExpertsInBf16) {
  const auto deck = [](PrecisionName precision, std::int64_t experts) {
    return [=](Deck& d) {
      d.train.precision = precision, d.machine.grouped = GroupedProducts::tensor_cores;
      d.model.experts = experts, d.model.experts_per_token = experts / 2;
    };
  };
  for (const PrecisionName precision : {PrecisionName::fp64, PrecisionName::fp32})
    expect_refused(deck(precision, 4),
                   {"machine.grouped = tensor_cores", "legal: automatic, library, or precision bf16"});
  for (const PrecisionName precision : {PrecisionName::bf16, PrecisionName::fp8})
    EXPECT_NO_THROW(checked(deck(precision, 4)));
  expect_refused(deck(PrecisionName::bf16, 0), {"machine.grouped = tensor_cores without model.experts"});
  const auto by_cutlass = [&](PrecisionName precision, std::int64_t mib) {
    return [=](Deck& d) {
      deck(precision, 4)(d), d.machine.grouped = GroupedProducts::cutlass, d.machine.workspace_mib = mib;
    };
  };
  EXPECT_NO_THROW(checked(by_cutlass(PrecisionName::bf16, 1)));
  expect_refused(by_cutlass(PrecisionName::fp32, 1), {"machine.grouped = cutlass without train.precision = bf16"});
  expect_refused(by_cutlass(PrecisionName::bf16, 0),
                 {"machine.grouped = cutlass with machine.workspace_mib = 0", "legal: workspace_mib 1 or more"});
  expect_refused([&](Deck& d) { deck(PrecisionName::fp8, 4)(d), d.train.fp8_carrier = Fp8Carrier::fp64; },
                 {"machine.grouped = tensor_cores", "fp8_carrier: bf16"});
}

TEST(CheckMachine, AutomaticProductsOfSmallExpertsAreGrouped) {
  const auto chosen = [](PrecisionName precision, std::int64_t experts, std::int64_t width, std::int64_t ffn) {
    return chosen_grouped_products(checked([&](Deck& d) {
      d.train.precision = precision, d.model.width = width, d.model.expert_ffn = experts > 0 ? ffn : 0;
      d.model.experts = experts, d.model.experts_per_token = experts / 2;
    }));
  };
  EXPECT_EQ(chosen(PrecisionName::bf16, 4, 2048, 768), GroupedProducts::tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::fp8, 4, 2048, 768), GroupedProducts::tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::bf16, 4, 4096, 4095), GroupedProducts::tensor_cores);
  EXPECT_EQ(chosen(PrecisionName::bf16, 4, 4096, 4096), GroupedProducts::library);
  EXPECT_EQ(chosen(PrecisionName::bf16, 0, 2048, 768), GroupedProducts::library);
  EXPECT_EQ(chosen(PrecisionName::fp32, 4, 2048, 768), GroupedProducts::library);
  EXPECT_EQ(chosen(PrecisionName::fp64, 4, 2048, 768), GroupedProducts::library);
  const Deck asked = checked([](Deck& d) {
    d.train.precision = PrecisionName::bf16, d.machine.grouped = GroupedProducts::library;
    d.model.experts = 4, d.model.experts_per_token = 2;
  });
  EXPECT_EQ(chosen_grouped_products(asked), GroupedProducts::library);
}

}  // namespace
}  // namespace forge
