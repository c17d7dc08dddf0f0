#include <gtest/gtest.h>

#include "block_rig.hpp"
#include "nn/row_operand.hpp"

namespace forge::test {
namespace {

class RowOperandTest : public testing::Test {
 protected:
  RowOperandTest() : rig(small_model(), Recompute::none), x(rig.rows()) {
    rig.buffers.rounding.on = true;
    rig.allocate_list([&](BufferLister& l) { l.add(rig.services.rounding.measured, "", rows(), 1); });
    rig.context.rounding.block = true;
  }
  std::int64_t rows() const { return rig.buffers.microbatch.rows(); }
  // What a kernel is asked for.
  RowOperand<double> measured(std::int64_t wanted) {
    return RowOperand<double>::measured(rig.context, x.view(),
                                        [&](View<float, 1> amax) { EXPECT_EQ(amax.rows(), wanted); });
  }

  BlockRig rig;
  BlockRig::Rows x;
};

TEST_F(RowOperandTest, HasItsMagnitudesUntilTheNextIsMeasured) {
  const RowOperand<double> first = measured(rows());
  EXPECT_EQ(first.amaxes().data, rig.services.rounding.measured.data);
  const RowOperand<double> copy = first;
  EXPECT_EQ(copy.amaxes().rows(), rows());
  const RowOperand<double> second = measured(rows());
  EXPECT_EQ(second.amaxes().rows(), rows());
  EXPECT_THROW(first.amaxes(), Error);
  EXPECT_THROW(copy.amaxes(), Error);
  EXPECT_EQ(first.values().data, x.view().data);
}

TEST_F(RowOperandTest, IsMeasuredForProductsThatAskAlone) {
  const RowOperand<double> first = measured(rows());
  rig.context.rounding.block = false;
  EXPECT_TRUE(measured(0).amaxes().empty());
  EXPECT_TRUE(RowOperand<double>(x.view()).amaxes().empty());
  EXPECT_EQ(first.amaxes().rows(), rows());
}

}  // namespace
}  // namespace forge::test
