#include <gtest/gtest.h>

#include "block_rig.hpp"
#include "config/fp8_recipe.hpp"
#include "nn/row_operand.hpp"

namespace forge::test {
namespace {

class RowOperandTest : public testing::Test {
 protected:
  RowOperandTest() : rig(small_model(), Recompute::none), x(rig.rows()) {
    rig.buffers.rounding.on = true;
    rig.buffers.rounding.end_block = rig.spec.L();
    rig.allocate_list([&](BufferLister& l) { kept.list(l, 0); });
    rig.allocate_list([&](BufferLister& l) { l.add(rig.services.scratch[0].rounding.amax, "", 4 * rows(), 1); });
    for (View<float, 1>& of_weight : rig.context.rounding.weights)
      of_weight = rig.services.scratch[0].rounding.amax.slice(0, 1);
    rig.context.rounding.block = true;
    rig.context.rounding.saved = kept;
  }
  std::int64_t rows() const { return rig.buffers.microbatch.rows(); }
  // What a kernel is asked for.
  RowAmaxes asked(ProductOf of = ProductOf::output) {
    RowAmaxes found;
    const auto operand = RowOperand<double>::measured(rig.context, of, mlp_up_split(rig.spec, rig.spec.F()), x.view(),
                                                      [&](const RowAmaxes& amax) { found = amax; });
    EXPECT_EQ(operand.measured(), found.amax != nullptr);
    EXPECT_EQ(operand.values().data, x.view().data);
    return found;
  }

  BlockRig rig;
  BlockRig::Rows x;
  SavedAmaxes kept;
};

TEST_F(RowOperandTest, RaisesWhatTheBlockKeeps) {
  const RowAmaxes forward = asked(), backward = asked(ProductOf::input_gradient);
  EXPECT_EQ(forward.amax, kept.of(BlockProduct::gate_up, RoundedTensor::x).data);
  EXPECT_EQ(backward.amax, kept.of(BlockProduct::gate_up, RoundedTensor::dy).data);
  EXPECT_TRUE(forward.raises && backward.raises);
  EXPECT_EQ(forward.each, rig.buffers.microbatch.sequence_tokens);
}

TEST_F(RowOperandTest, HasANumberForEachRowWhereRowsHaveScales) {
  rig.buffers.rounding.recipe = Fp8Recipe::row;
  rig.context.rounding.saved = {};
  rig.context.rounding.weights = {};
  const RowAmaxes amax = asked();
  EXPECT_EQ(amax.amax, rig.services.scratch[0].rounding.amax.data);
  EXPECT_FALSE(amax.raises);
}

TEST_F(RowOperandTest, IsMeasuredForProductsThatAskAlone) {
  rig.context.rounding.saved.recomputes = true;
  EXPECT_EQ(asked().amax, nullptr);
  rig.context.rounding.saved.recomputes = false;
  EXPECT_NE(asked().amax, nullptr);
  rig.context.rounding.block = false;
  EXPECT_EQ(asked().amax, nullptr);
  EXPECT_FALSE(RowOperand<double>(x.view()).measured());
}

}  // namespace
}  // namespace forge::test
