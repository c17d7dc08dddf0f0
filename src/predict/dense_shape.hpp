#pragma once

#include <cstdint>

#include "config/deck.hpp"

namespace forge {

inline constexpr double least_dense_parameters = 1e9, most_dense_parameters = 1e12;

// The dimensions of a dense model of about so many parameters (least_dense_parameters to most_dense_parameters), with
// Llama's vocabulary of 128,256 ids, SwiGLU and 8 heads of keys. 1e9, 3e9, 8e9, 7e10 and 4.05e11 are Llama 3's models
// of these names; 1e12 has the width and the layers of Megatron-LM's largest (arXiv:2104.04473). Between them the width
// follows the logarithm of the size and the ratio of ffn to width is interpolated, both to multiples of 1,024; layers
// are the even number whose count comes nearest.
ModelDeck dense_shape(double parameters);

// How such a model is trained, unless a deck says otherwise: tokens of a step, and its learning rate, by its size.
std::int64_t dense_step_tokens(double parameters);
double dense_learning_rate(double parameters);

}  // namespace forge
