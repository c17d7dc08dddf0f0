#include "predict/dense_shape.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace forge {

namespace {

struct Published {
  double name, parameters;  // by which it is called, and that it has
  std::int64_t width, layers, heads, ffn;
  bool tied;
};

constexpr Published published[] = {{1e9, 1.236e9, 2048, 16, 32, 8192, true},
                                   {3e9, 3.213e9, 3072, 28, 24, 8192, true},
                                   {8e9, 8.030e9, 4096, 32, 32, 14336, false},
                                   {7e10, 7.055e10, 8192, 80, 64, 28672, false},
                                   {4.05e11, 4.0585e11, 16384, 126, 128, 53248, false},
                                   {1e12, 9.996e11, 25600, 128, 200, 83200, false}};

constexpr std::int64_t vocabulary = 128256, kv_heads = 8, head_dim = 128, granule = 1024;

std::int64_t to_granules(double columns) {
  return granule * std::max<std::int64_t>(1, std::llround(columns / static_cast<double>(granule)));
}

Published between(const Published& a, const Published& b, double parameters) {
  const double t = std::clamp(std::log(parameters / a.parameters) / std::log(b.parameters / a.parameters), 0.0, 1.0);
  const auto ratio = [](const Published& p) { return static_cast<double>(p.ffn) / static_cast<double>(p.width); };
  const auto a_width = static_cast<double>(a.width);
  Published shape{parameters, parameters, to_granules(a_width * std::pow(b.width / a_width, t)), 0, 0, 0, b.tied};
  const auto width = static_cast<double>(shape.width);
  shape.ffn = to_granules(width * (ratio(a) + t * (ratio(b) - ratio(a))));
  shape.heads = shape.width / head_dim;
  const double tables = static_cast<double>(vocabulary) * width * (shape.tied ? 1 : 2);
  const double block = width * (2 * width + 2 * kv_heads * head_dim + 3 * static_cast<double>(shape.ffn));
  shape.layers = 2 * std::max<std::int64_t>(1, std::llround((parameters - tables) / block / 2));
  return shape;
}

Published shape_of(double parameters) {
  for (const Published& p : published)
    if (std::abs(parameters / p.name - 1) < 1e-9) return p;
  const auto* above = std::find_if(std::begin(published) + 1, std::end(published) - 1,
                                   [&](const Published& p) { return parameters < p.parameters; });
  return between(above[-1], *above, parameters);
}

}  // namespace

ModelDeck dense_shape(double parameters) {
  const Published shape = shape_of(parameters);
  ModelDeck model;
  model.layers = shape.layers;
  model.width = shape.width;
  model.heads = shape.heads;
  model.kv_heads = kv_heads;
  model.ffn = shape.ffn;
  model.vocabulary = vocabulary;
  model.rope_theta = 5e5;
  model.tied_embeddings = shape.tied;
  return model;
}

std::int64_t dense_step_tokens(double parameters) {
  constexpr std::int64_t million = std::int64_t{1} << 20;
  return million * (parameters < 5e9 ? 1 : parameters < 1e11 ? 4 : parameters < 3e11 ? 8 : 16);
}

double dense_learning_rate(double parameters) {
  return parameters < 2e10 ? 3e-4 : parameters < 2e11 ? 1.5e-4 : 8e-5;
}

}  // namespace forge
