#include "config/optimizer_table.hpp"
#include "small_deck.hpp"

// What the types of an optimizer's states and of sums of gradients are held against.

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

TEST(CheckStateTypes, StatesInBf16) {
  const auto bf16 = [](Deck& d) {
    d.train.precision = PrecisionName::bf16;
    d.optimizer.master_weights = StateType::bf16;
  };
  for (const OptimizerName name : {OptimizerName::adamw, OptimizerName::lion, OptimizerName::sgd, OptimizerName::muon,
                                   OptimizerName::normuon, OptimizerName::soap})
    checked([&](Deck& d) { bf16(d), d.optimizer.name = name; }, 4);
  const auto fp8 = [&](Deck& d) { bf16(d), d.train.precision = PrecisionName::fp8; };
  checked(fp8, 4);
  expect_refused([&](Deck& d) { fp8(d), d.train.fp8_carrier = Fp8Carrier::fp64; },
                 {"optimizer.master_weights = bf16 with train.precision = fp8 and FORGE_FP8_CARRIER = fp64", "legal:"});
  expect_refused([&](Deck& d) { bf16(d), d.train.precision = PrecisionName::fp32; },
                 {"optimizer.master_weights = bf16 with train.precision = fp32", "legal: default, or precision bf16"});
  expect_refused([&](Deck& d) { bf16(d), d.train.precision = PrecisionName::fp64; },
                 {"optimizer.master_weights = bf16 with train.precision = fp64", "legal: default, or precision bf16"});
  const auto moments = [](Deck& d) { d.optimizer.moments = StateType::bf16; };
  checked([&](Deck& d) { moments(d), d.train.precision = PrecisionName::fp32; }, 4);
  expect_refused([&](Deck& d) { moments(d), d.train.precision = PrecisionName::fp64; },
                 {"optimizer.moments = bf16 with train.precision = fp64", "legal: default, or precision fp32"});
  expect_refused([&](Deck& d) { bf16(d), d.optimizer.qk_clip = 50; },
                 {"optimizer.master_weights = bf16 with optimizer.qk_clip = 50", "legal: default, or qk_clip: 0"});
  expect_refused([&](Deck& d) { bf16(d), d.optimizer.name = OptimizerName::adafactor; },
                 {"optimizer.master_weights = bf16 with optimizer.name = adafactor", "adamw | lion | sgd | muon"});
}

TEST(CheckStateTypes, GradientsInBf16) {
  const auto bf16 = [](Deck& d) {
    d.train.precision = PrecisionName::bf16;
    d.optimizer.gradients = StateType::bf16;
  };
  for (const OptimizerName name : {OptimizerName::adamw, OptimizerName::lion, OptimizerName::sgd, OptimizerName::muon,
                                   OptimizerName::normuon, OptimizerName::soap})
    checked([&](Deck& d) { bf16(d), d.optimizer.name = name; }, 4);
  for (const OptimizerName name : {OptimizerName::adafactor, OptimizerName::schedule_free})
    expect_refused([&](Deck& d) { bf16(d), d.optimizer.name = name; },
                   {"optimizer.gradients = bf16 with optimizer.name = ", "adamw | lion | sgd | muon"});
  const auto fp8 = [&](Deck& d) { bf16(d), d.train.precision = PrecisionName::fp8; };
  checked(fp8, 4);
  expect_refused([&](Deck& d) { fp8(d), d.train.fp8_carrier = Fp8Carrier::fp64; },
                 {"optimizer.gradients = bf16 with train.precision = fp8 and FORGE_FP8_CARRIER = fp64", "legal:"});
  for (const PrecisionName precision : {PrecisionName::fp32, PrecisionName::fp64})
    expect_refused([&](Deck& d) { bf16(d), d.train.precision = precision; },
                   {"optimizer.gradients = bf16 with train.precision = fp", "legal: default, or precision bf16"});
  const auto clip = [&](Deck& d) { bf16(d), d.optimizer.qk_clip = 50; };
  checked(clip, 4);
  expect_refused(
      [&](Deck& d) { clip(d), d.output.norms_every_steps = 10; },
      {"optimizer.gradients = bf16 with optimizer.qk_clip = 50 and output.norms_every_steps = 10", "legal:"});
}

}  // namespace
}  // namespace forge
