#include "kernels/rows/rounding.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>

#include "../device_values.hpp"
#include "layout/local_units.hpp"
#include "model/spec.hpp"
#include "nn/units.plan.hpp"
#include "optim/rule.hpp"

namespace forge::test {
namespace {

// A mean of `count` independent numbers of at most deviation s is farther than this from what it should be once in
// 1.7 million times.
double five_sigma(double s, std::int64_t count) {
  return 5 * s / std::sqrt(static_cast<double>(count));
}

constexpr std::int64_t draws = 1 << 16;

// Of values at any place between two bf16, of both signs: the two neighbours only, and the mean is the value. A draw of
// p spacings above the lower one has a variance of p (1 − p) spacings².
TEST(Rounding, IsUnbiased) {
  const Rounding rounding({rounding_key(1, "w"), 0, 0}, 3);
  for (int which = 0; which <= weight_draw; ++which)
    for (const double share : {0.0, 0x1p-12, 0.1, 0.5, 0.8, 1 - 0x1p-12})
      for (const double base : {1.0, -1.5, 0x1.02p-100, 3e30}) {
        const double lower = static_cast<double>(bf16(base)),
                     spacing = std::ldexp(1.0, std::max(std::ilogb(lower), -126) - 7);
        const auto x = static_cast<float>(lower + std::copysign(share * spacing, lower));
        double sum = 0;
        for (std::int64_t i = 0; i < draws; ++i) {
          const auto up =
              (static_cast<double>(rounded<bf16>(x, rounding(i, which))) - lower) / std::copysign(spacing, lower);
          ASSERT_TRUE(up == 0 || (up == 1 && share > 0)) << up;
          sum += up;
        }
        EXPECT_NEAR(sum / draws, share, five_sigma(std::sqrt(share * (1 - share)), draws)) << base << ", " << which;
      }
}

// Numbers of neighbours, of the states of one element, of the next update and of another tensor know nothing of each
// other: products of two of them, uniform on −½ … ½, have mean 0 and a deviation of 1/12.
TEST(Rounding, DrawsAreIndependent) {
  const Rounding now({rounding_key(1, "w"), 0, 0}, 3), next({rounding_key(1, "w"), 0, 0}, 4),
      other({rounding_key(1, "v"), 0, 0}, 3), seed({rounding_key(2, "w"), 0, 0}, 3);
  const auto centred = [](std::uint16_t bits) { return (bits + 0.5) / 65536 - 0.5; };
  std::array<double, 13> products{};
  for (std::int64_t i = 0; i < draws; ++i) {
    const double x = centred(now(i, 0));
    const std::array others{now(i, 1),     now(i, 2),     now(i + 1, 0), now(i + 2, 0), now(i + 3, 0),
                            now(i + 4, 0), now(i + 5, 0), now(i + 6, 0), now(i + 7, 0), now(i + 8, 0),
                            next(i, 0),    other(i, 0),   seed(i, 0)};
    for (std::size_t k = 0; k < others.size(); ++k) products[k] += x * centred(others[k]);
  }
  for (const double product : products) EXPECT_NEAR(product / draws, 0, five_sigma(1.0 / 12, draws));
}

TEST(Rounding, KeepsWhatFits) {
  const Rounding rounding({rounding_key(1, "w"), 0, 0}, 1);
  for (const float x : {0.f, -0.f, 1.f, -3.f, 0x1p-120f, INFINITY, -INFINITY})
    for (std::int64_t i = 0; i < 100; ++i) {
      const auto kept = static_cast<float>(rounded<bf16>(x, rounding(i, 0)));
      EXPECT_EQ(kept, x);
      EXPECT_EQ(std::signbit(kept), std::signbit(x));
      EXPECT_TRUE(std::isnan(static_cast<float>(rounded<bf16>(std::nanf(""), rounding(i, 0)))));
      EXPECT_EQ(rounded<float>(0x1.23456p0f, rounding(i, 0)), 0x1.23456p0f);
    }
}

// Every element that a rank holds has its number in the whole tensor, wherever a shard begins.
TEST(Rounding, PlacesAreThoseOfTheWholeTensor) {
  ModelDeck model;
  model.layers = 2;
  model.width = 48;
  model.heads = 6;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.ffn = 80;
  model.vocabulary = 131;
  const ModelSpec spec = resolve_model(model);
  std::int64_t compared = 0, apart = 0;
  for (const int tp : {1, 2, 4})
    for (int rank = 0; rank < tp; ++rank)
      for (const int shards : {1, 3})
        for (int shard = 0; shard < shards; ++shard)
          for (const Unit& whole : parameter_units(spec)) {
            LocalLayout layout;
            layout.tp = tp;
            layout.tp_rank = rank;
            layout.zero = Zero{};
            layout.zero.stage = shards > 1 ? 3 : 0;
            layout.zero.shards = shards;
            layout.zero.shard = shard;
            const LocalUnit unit = local_unit(spec, whole, layout);
            for (const forge::ElementRun& run : runs_of(unit, unit.state())) {
              const Parameter& parameter = unit.parameters[run.piece->parameter];
              const ElementPlace place = place_of(unit, run.local, 9);
              EXPECT_EQ(place.key, rounding_key(9, parameter.name));
              // From the state's first element in the piece on, as an update counts, and from the run's.
              const std::int64_t first = std::max(run.piece->offset, unit.state().begin);
              const ElementPlace from = place_of(unit, first, 9);
              for (std::int64_t i = 0; i < run.count; ++i, ++compared) {
                ASSERT_EQ(place.element(i), run.global + i) << parameter.name;
                ASSERT_EQ(from.element(run.local - first + i), run.global + i) << parameter.name;
                apart += from.element(run.local - first + i) != run.local - first + i;
              }
            }
          }
  EXPECT_GT(compared, 100'000);
  EXPECT_GT(apart, compared / 3);
}

// ---- updates

// A tensor of `rows` x `columns` in an update: weights, and what AdamW keeps, in bf16.
struct Tensor {
  std::int64_t rows, columns;
  std::vector<bf16> weights, first, second;
  std::vector<float> gradient;

  Tensor(std::int64_t r, std::int64_t c, double weight, double moment, double g)
      : rows(r),
        columns(c),
        weights(size(), bf16(weight)),
        first(size(), bf16(moment)),
        second(size(), bf16(moment)),
        gradient(size(), static_cast<float>(g)) {}
  std::size_t size() const { return static_cast<std::size_t>(rows * columns); }
};

OptimizerDeck deck_of(OptimizerName name) {
  OptimizerDeck deck;
  deck.name = name;
  deck.learning_rate = 1e-3;
  return deck;
}

// An update of a box of the tensor, as a rank that holds just that.
void update_box(Tensor& tensor, const OptimizerDeck& deck, const Box& box, std::int64_t number) {
  Stream stream(2);
  const std::int64_t count = box.size();
  const auto at = [&](std::int64_t i) {
    return static_cast<std::size_t>((box.offset[0] + i / box.extent[1]) * tensor.columns + box.offset[1] +
                                    i % box.extent[1]);
  };
  const auto part = [&](const auto& whole) {
    std::decay_t<decltype(whole)> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(whole[at(i)]);
    return values;
  };
  const DeviceArray<float, 1> gradient(stream, {{count}}, part(tensor.gradient));
  const DeviceArray<bf16, 1> weights(stream, {{count}}, part(tensor.weights)),
      first(stream, {{count}}, part(tensor.first)), second(stream, {{count}}, part(tensor.second));
  const DeviceArray<double, 1> memory(stream, {{8}});
  const StepScalars host{0, 0, 0, 1, 1};
  auto* const scalars = static_cast<StepScalars*>(static_cast<void*>(memory.view().data));
  copy_to_device(stream, scalars, &host, sizeof host);
  UpdateArgs<bf16> run{gradient.view(), {}, weights.view(), {}, {deck.learning_rate, deck.weight_decay}};
  run.state.push_back({DType::bf16, first.view().data});
  if (deck.name == OptimizerName::adamw) run.state.push_back({DType::bf16, second.view().data});
  run.place = {rounding_key(5, "w"), flat_index({tensor.rows, tensor.columns}, box.offset), 0, box.extent[1],
               tensor.columns - box.extent[1]};
  update_run<bf16>(stream, deck, {number, deck.learning_rate, {scalars, {{1}}}}, run);
  stream.synchronize();
  const auto put = [&](const std::vector<bf16>& from, std::vector<bf16>& to) {
    for (std::int64_t i = 0; i < count; ++i) to[at(i)] = from[static_cast<std::size_t>(i)];
  };
  put(weights.get(), tensor.weights);
  put(first.get(), tensor.first);
  put(second.get(), tensor.second);
}

double mean_of(const std::vector<bf16>& values) {
  double sum = 0;
  for (const bf16 value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

// Elements that are alike, with a gradient of 0: means follow β^t and (1 − lr · decay)^t, where rounding to nearest
// would never leave the first value, or as one. Each update adds at most a quarter of a spacing² of variance.
TEST(Rounding, MeansFollowTheUpdateInFp32) {
  OptimizerDeck deck = deck_of(OptimizerName::adamw);
  deck.beta1 = 0.999;
  deck.beta2 = 0.9995;
  deck.weight_decay = 0.5;
  const std::int64_t count = 1 << 14, updates = 100;
  Tensor tensor(1, count, 1.5, 1e-3, 0);
  // The step is lr m̂ / (√v̂ + ε); lr is little beside the decay of lr · 0.5 · 1.5 where v is large: it is counted.
  double p = static_cast<double>(bf16(1.5)), m = static_cast<double>(bf16(1e-3)), v = m;
  for (std::int64_t t = 1; t <= updates; ++t) {
    update_box(tensor, deck, {{0, 0}, {1, count}}, t);
    m *= deck.beta1;
    v *= deck.beta2;
    const double step =
        m / (1 - std::pow(deck.beta1, t)) / (std::sqrt(v / (1 - std::pow(deck.beta2, t))) + deck.epsilon);
    p = p * (1 - deck.learning_rate * deck.weight_decay) - deck.learning_rate * step;
  }
  const double roots = std::sqrt(static_cast<double>(updates)) / 2;
  EXPECT_NEAR(mean_of(tensor.first), m, five_sigma(roots * 0x1p-17, count));
  EXPECT_NEAR(mean_of(tensor.second), v, five_sigma(roots * 0x1p-17, count));
  // Steps are of m and v, whose errors, relative to them, are at most roots 2^−7: of independent elements.
  const double of_steps = static_cast<double>(updates) * deck.learning_rate * 2 * roots * 0x1p-7;
  EXPECT_NEAR(mean_of(tensor.weights), p, five_sigma(roots * 0x1p-7 + of_steps, count));
  EXPECT_LT(m, 0.95e-3);
  EXPECT_LT(p, 1.42);
}

// Rows, columns, and ranges that begin anywhere: all bits are those of the whole tensor.
TEST(Rounding, PartsOfATensorGiveItsBits) {
  for (const OptimizerName name : {OptimizerName::adamw, OptimizerName::lion, OptimizerName::sgd}) {
    const OptimizerDeck deck = deck_of(name);
    const auto start = [] {
      Tensor tensor(70, 96, 0.3, 1e-2, 0);
      for (std::size_t i = 0; i < tensor.size(); ++i) tensor.gradient[i] = static_cast<float>(normal(7, i));
      return tensor;
    };
    Tensor whole = start(), columns = start(), uneven = start(), rows = start();
    for (std::int64_t t = 1; t <= 3; ++t) {
      update_box(whole, deck, {{0, 0}, {70, 96}}, t);
      for (std::int64_t c = 0; c < 96; c += 32) update_box(columns, deck, {{0, c}, {70, 32}}, t);
      for (const auto& [first, count] : {std::pair{0, 5}, {5, 27}, {32, 64}})
        update_box(uneven, deck, {{0, first}, {70, count}}, t);
      update_box(rows, deck, {{0, 0}, {31, 96}}, t);
      update_box(rows, deck, {{31, 0}, {1, 17}}, t);
      update_box(rows, deck, {{31, 17}, {1, 79}}, t);
      update_box(rows, deck, {{32, 0}, {38, 96}}, t);
    }
    for (const Tensor* parts : {&columns, &uneven, &rows})
      for (std::size_t i = 0; i < whole.size(); ++i) {
        ASSERT_EQ(whole.weights[i].bits, parts->weights[i].bits) << i;
        ASSERT_EQ(whole.first[i].bits, parts->first[i].bits) << i;
        ASSERT_EQ(whole.second[i].bits, parts->second[i].bits) << i;
      }
  }
}

// Whole rows whose first element is no eighth of the tensor.
TEST(Rounding, RowsThatBeginAnywhereGiveTheTensorsBits) {
  const OptimizerDeck deck = deck_of(OptimizerName::adamw);
  Tensor whole(70, 97, 0.3, 1e-2, 0.1), parts(70, 97, 0.3, 1e-2, 0.1);
  update_box(whole, deck, {{0, 0}, {70, 97}}, 1);
  for (const auto& [first, count] : {std::pair{0, 31}, {31, 1}, {32, 38}})
    update_box(parts, deck, {{first, 0}, {count, 97}}, 1);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_EQ(whole.weights[i].bits, parts.weights[i].bits) << i;
    ASSERT_EQ(whole.first[i].bits, parts.first[i].bits) << i;
  }
}

}  // namespace
}  // namespace forge::test
