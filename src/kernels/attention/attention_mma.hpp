#pragma once

#include <cstdint>

#include "kernels/attention/attention_cuda.hpp"

namespace forge::attention_mma {

// attention_forward() and attention_backward() of bf16 by tensor cores: products of
// bf16 with sums in fp32, probabilities and their gradients rounded to bf16 before the products that take them. No two
// blocks add to the same number: the same bits in every run. p is checked; its scale must be positive.
void forward(Stream& stream, const attention_detail::Problem<bf16>& p, View<bf16, 3> o, View<float, 2> lse,
             View<float, 2> peak);
void backward(Stream& stream, const attention_detail::Problem<bf16>& p, const attention_detail::Gradients<bf16>& g);

}  // namespace forge::attention_mma
