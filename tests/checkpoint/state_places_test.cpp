#include <gtest/gtest.h>

#include "checkpoint/storage_state.hpp"
#include "config/optimizer_table.hpp"

namespace forge::test {
namespace {

Parameter parameter(const std::string& name, const Extents& shape, std::int64_t expert = -1) {
  Parameter p;
  p.name = name;
  p.shape = shape;
  p.expert = expert;
  return p;
}

void check(const StateSpec& state, const Parameter& p, const Range& rows, const std::string& name, const Extents& shape,
           const Box& box) {
  const StatePlace place = place_of_state(state, p, 4, rows);
  EXPECT_EQ(place.name, name);
  EXPECT_EQ(place.shape, shape) << name;
  EXPECT_EQ(place.box, box) << name;
}

TEST(StatePlaces, OfRowsAndColumnsLackADimension) {
  const auto& states = row_of(OptimizerName::adafactor).states;
  const Parameter p = parameter("layers.0.attention.q", {6, 5});
  check(states[1], p, {0, 6}, "second_moment_of_rows/layers.0.attention.q", {6}, {{0}, {6}});
  check(states[2], p, {0, 6}, "second_moment_of_columns/layers.0.attention.q", {5}, {{0}, {5}});
  const Parameter expert = parameter("layers.0.experts.2.up", {6, 5}, 2);
  check(states[1], expert, {0, 6}, "second_moment_of_rows/layers.0.experts.up", {4, 6}, {{2, 0}, {1, 6}});
  check(states[2], expert, {0, 6}, "second_moment_of_columns/layers.0.experts.up", {4, 5}, {{2, 0}, {1, 5}});
  check(states[0], parameter("head.norm", {7}), {0, 7}, "second_moment/head.norm", {7}, {{0}, {7}});
}

// Of q, k and v in one tensor: rows stand in one tensor, squares in tensors of their own.
TEST(StatePlaces, OfMatricesThatAreRowsOfATensor) {
  const Parameter p = parameter("layers.0.attention.qkv", {9, 5});
  const auto& normuon = row_of(OptimizerName::normuon).states;
  check(normuon[3], p, {3, 6}, "second_moment_of_rows/layers.0.attention.qkv", {9}, {{3}, {3}});
  const auto& soap = row_of(OptimizerName::soap).states;
  check(soap[2], p, {3, 6}, "first_moment/layers.0.attention.qkv", {9, 5}, {{3, 0}, {3, 5}});
  check(soap[3], p, {3, 6}, "bases/layers.0.attention.qkv.second_moment", {9, 5}, {{3, 0}, {3, 5}});
  check(soap[4], p, {3, 6}, "bases/layers.0.attention.qkv.rows_3.covariance_of_rows", {3, 3}, {{0, 0}, {3, 3}});
  check(soap[5], p, {3, 6}, "bases/layers.0.attention.qkv.rows_3.rows", {3, 3}, {{0, 0}, {3, 3}});
  check(soap[6], p, {0, 9}, "bases/layers.0.attention.qkv.covariance_of_columns", {5, 5}, {{0, 0}, {5, 5}});
  const Parameter expert = parameter("layers.0.experts.2.up", {6, 5}, 2);
  check(soap[7], expert, {0, 6}, "bases/layers.0.experts.up.columns", {4, 5, 5}, {{2, 0, 0}, {1, 5, 5}});
}

}  // namespace
}  // namespace forge::test
