#pragma once

#include <array>

#include "config/fp8_format.hpp"
#include "core/to_size.hpp"

// The recipes of FP8, for the deck's keys and for whoever plans, runs or refuses a product. A new recipe of these
// properties is a row here; groups of another form stand in fp8/scaled_product, a format of its own in
// config/fp8_format.hpp.

namespace forge {

enum class Fp8Recipe : int { current, row, block, delayed };

// The activations, or output gradients, that share a scale.
enum class RowScale : int {
  sequence,     // of one sequence
  token,        // a row's
  token_block,  // 128 columns of a row
  steps         // all of a batch; known from the steps before
};
// The numbers of a weight that share one.
enum class WeightScale : int {
  matrix,
  line,  // of the product's result: a row forward, a column in the gradient of the input
  block  // 128 x 128
};

struct Fp8RecipeRow {
  const char* word;  // of the deck
  RowScale rows;
  WeightScale weights;
  Fp8Format operands;   // of activations and weights
  Fp8Format gradients;  // of outputs

  constexpr bool has_history() const { return rows == RowScale::steps; }
  // Whether a token's scales are its own, whatever stands before and behind it.
  constexpr bool by_token() const { return rows == RowScale::token || rows == RowScale::token_block; }
  // Whether weight gradients are rounded, too: their sums run over rows, which then need one scale.
  constexpr bool rounds_sums_of_rows() const { return !by_token(); }
  // Whether forward and backward read the same codes of a weight.
  constexpr bool has_one_code() const { return weights != WeightScale::line; }
};

// In the order of Fp8Recipe.
inline constexpr std::array fp8_recipes{
    Fp8RecipeRow{"current", RowScale::sequence, WeightScale::matrix, Fp8Format::e4m3, Fp8Format::e5m2},
    Fp8RecipeRow{"row", RowScale::token, WeightScale::line, Fp8Format::e4m3, Fp8Format::e5m2},
    Fp8RecipeRow{"block", RowScale::token_block, WeightScale::block, Fp8Format::e4m3, Fp8Format::e4m3},
    Fp8RecipeRow{"delayed", RowScale::steps, WeightScale::matrix, Fp8Format::e4m3, Fp8Format::e5m2}};
inline constexpr const char* fp8_recipe_doc =
    "with one scale: a sequence's activations and a whole matrix; a token and an output row; 1 x 128 of a token "
    "and 128 x 128 of a matrix; the batch's activations and a whole matrix, from the steps before";

constexpr const Fp8RecipeRow& properties_of(Fp8Recipe recipe) {
  return fp8_recipes[to_size(recipe)];
}

}  // namespace forge
