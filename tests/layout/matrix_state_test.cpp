#include "layout/matrix_state.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "config/optimizer_table.hpp"
#include "layout/rotated_state.hpp"

namespace forge::test {
namespace {

MatrixState state_of(OptimizerName name, std::int64_t rows, std::int64_t columns, std::int64_t largest_side = 100) {
  OptimizerDeck deck;
  deck.name = name;
  deck.soap_largest_side = largest_side;
  return matrix_state(deck, rows, columns);
}

TEST(MatrixState, OfMuonIsNone) {
  EXPECT_EQ(state_of(OptimizerName::muon, 10, 20).elements, 0);
  EXPECT_EQ(state_of(OptimizerName::adafactor, 10, 20).elements, 0);
}

// Those of a stack's matrices follow each other without a gap.
TEST(MatrixState, OfNormuonIsANumberOfARow) {
  const MatrixState state = state_of(OptimizerName::normuon, 10, 20);
  ASSERT_EQ(state.parts.size(), 1u);
  EXPECT_EQ(state.parts[0].at, 0);
  EXPECT_EQ(state.parts[0].elements, 10);
  EXPECT_EQ(state.elements, 10);
}

// Two moments, and of each side a covariance and its basis, each at a multiple of 64 elements.
TEST(MatrixState, OfSoapIsMomentsAndSquares) {
  const RotatedState all(state_of(OptimizerName::soap, 10, 20));
  EXPECT_TRUE(all.rotates_rows && all.rotates_columns);
  EXPECT_EQ((std::vector{all.first_moment(), all.second_moment(), all.covariance_of_rows(), all.basis_of_rows(),
                         all.covariance_of_columns(), all.basis_of_columns()}),
            (std::vector<std::int64_t>{0, 256, 512, 640, 768, 1216}));
  EXPECT_EQ(all.longest(), 20);
  EXPECT_EQ(state_of(OptimizerName::soap, 10, 20).elements, 1664);
}

TEST(MatrixState, OfSoapHasNoSquareOfALongSide) {
  const MatrixState state = state_of(OptimizerName::soap, 10, 20, 19);
  const RotatedState rows(state);
  EXPECT_TRUE(rows.rotates_rows && !rows.rotates_columns);
  EXPECT_EQ(rows.longest(), 10);
  EXPECT_EQ(rows.basis_of_rows(), 640);
  EXPECT_EQ(state.elements, 768);
  const RotatedState none(state_of(OptimizerName::soap, 10, 20, 9));
  EXPECT_TRUE(!none.rotates_rows && !none.rotates_columns);
  EXPECT_EQ(none.longest(), 0);
  EXPECT_EQ(state_of(OptimizerName::soap, 10, 20, 9).elements, 512);
}

}  // namespace
}  // namespace forge::test
