#include <gtest/gtest.h>

#include <cmath>

#include "block_rig.hpp"
#include "nn/delta_rule.hpp"

// The chunked delta rule against its recurrence, token by token.

namespace forge::test {
namespace {

using Numbers = std::vector<double>;

double at(const Numbers& x, std::int64_t i) {
  return x[static_cast<std::size_t>(i)];
}
double& at(Numbers& x, std::int64_t i) {
  return x[static_cast<std::size_t>(i)];
}

struct Inputs {
  Numbers mixed, b, a, log_decay, time_bias;
  std::vector<std::int32_t> documents;
};

Numbers drawn(std::int64_t count, std::uint64_t key, double scale) {
  Numbers values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(scale * normal(key, static_cast<std::uint64_t>(i)));
  return values;
}

Inputs inputs_of(const DeltaShape& s, bool several_documents) {
  const std::int64_t rows = s.sequences * s.tokens;
  Inputs in{drawn(rows * s.channels(), 1, 1), drawn(rows * s.value_heads, 2, 1), drawn(rows * s.value_heads, 3, 1),
            drawn(s.value_heads, 4, 0.7),     drawn(s.value_heads, 5, 1),        {}};
  for (std::int64_t r = 0; r < rows; ++r)
    in.documents.push_back(several_documents ? static_cast<std::int32_t>(r % s.tokens / 23) : 0);
  return in;
}

// x / √(x·x + 1e-6) · scale
Numbers unit(const double* x, std::int64_t n, double scale) {
  double squares = 0;
  for (std::int64_t j = 0; j < n; ++j) squares += x[j] * x[j];
  Numbers y;
  for (std::int64_t j = 0; j < n; ++j) y.push_back(x[j] * scale / std::sqrt(squares + 1e-6));
  return y;
}

// S ← a S; u = β (v − Sᵀ k); S ← S + k uᵀ; o = Sᵀ q
Numbers recurrence(const DeltaShape& s, const Inputs& in) {
  Numbers out(static_cast<std::size_t>(s.sequences * s.tokens * s.value_heads * s.value_dim));
  const std::int64_t Dk = s.key_dim, Dv = s.value_dim, shared = s.value_heads / s.key_heads;
  for (std::int64_t sequence = 0; sequence < s.sequences; ++sequence)
    for (std::int64_t head = 0; head < s.value_heads; ++head) {
      Numbers state(static_cast<std::size_t>(Dk * Dv), 0);
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const std::int64_t r = sequence * s.tokens + t;
        const auto document = [&](std::int64_t row) { return in.documents[static_cast<std::size_t>(row)]; };
        const bool begins = t == 0 || document(r) != document(r - 1);
        const double* const row = in.mixed.data() + r * s.channels();
        const Numbers q = unit(row + head / shared * Dk, Dk, 1 / std::sqrt(static_cast<double>(Dk)));
        const Numbers k = unit(row + (s.key_heads + head / shared) * Dk, Dk, 1);
        const double* const v = row + 2 * s.key_heads * Dk + head * Dv;
        const double x = at(in.a, r * s.value_heads + head) + at(in.time_bias, head);
        const double decay = begins ? 0 : std::exp(-std::exp(at(in.log_decay, head)) * std::log1p(std::exp(x)));
        const double beta = 1 / (1 + std::exp(-at(in.b, r * s.value_heads + head)));
        for (std::int64_t j = 0; j < Dv; ++j) {
          double known = 0, o = 0;
          for (std::int64_t i = 0; i < Dk; ++i) known += (at(state, i * Dv + j) *= decay) * at(k, i);
          const double u = beta * (v[j] - known);
          for (std::int64_t i = 0; i < Dk; ++i) o += (at(state, i * Dv + j) += at(k, i) * u) * at(q, i);
          at(out, (r * s.value_heads + head) * Dv + j) = o;
        }
      }
    }
  return out;
}

// A rule on the device, with all that it reads and writes.
struct Rule {
  Rule(std::int64_t sequences, std::int64_t tokens) : rig(model(), Recompute::none, {sequences, tokens}) {}

  static ModelDeck model() {
    ModelDeck deck = small_model();
    set_delta(deck);
    return deck;
  }
  struct Slopes {
    Numbers mixed, b, a, decay;
  };
  // The output, and with `d_out` the gradients.
  Numbers run(const Inputs& in, const Numbers* d_out = nullptr, Slopes* slopes = nullptr) {
    const std::int64_t rows = shape.sequences * shape.tokens, heads = shape.value_heads;
    DeviceArray<double, 2> mixed(rig.stream, {{rows, shape.channels()}}, in.mixed),
        b(rig.stream, {{rows, heads}}, in.b), a(rig.stream, {{rows, heads}}, in.a),
        out(rig.stream, {{rows, heads * shape.value_dim}});
    DeviceArray<double, 1> log_decay(rig.stream, {{heads}}, in.log_decay),
        time_bias(rig.stream, {{heads}}, in.time_bias);
    DeviceArray<std::int32_t, 1> documents(rig.stream, {{rows}}, in.documents);
    const DeltaGates<double> gates{b.view(), a.view(), log_decay.view(), time_bias.view()};
    const DeltaRule<double> rule(rig.context, documents.view(), mixed.view(), gates);
    Frame frame(rig.arena);
    if (!d_out) {
      rule.forward(workspace<DeltaForward<double>>(rig.context), out.view());
      return out.get();
    }
    out.set(*d_out);
    DeviceArray<double, 2> d_mixed(rig.stream, {{rows, shape.channels()}}), db(rig.stream, {{rows, heads}}),
        da(rig.stream, {{rows, heads}}), decay(rig.stream, {{rows, heads}});
    rule.backward(workspace<DeltaBackward<double>>(rig.context), out.view(), d_mixed.view(), db.view(), da.view(),
                  decay.view());
    *slopes = {d_mixed.get(), db.get(), da.get(), decay.get()};
    return {};
  }

  BlockRig rig;
  DeltaShape shape = delta_shape(rig.buffers);
};

constexpr std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 1}, {2, 7}, {1, 64}, {2, 65}, {2, 150}};

TEST(DeltaRule, EqualsItsRecurrence) {
  for (const auto& [sequences, tokens] : sizes)
    for (const bool several : {false, true}) {
      Rule rule(sequences, tokens);
      const Inputs in = inputs_of(rule.shape, several);
      const Numbers expected = recurrence(rule.shape, in), got = rule.run(in);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], 1e-13) << sequences << " x " << tokens << ", " << several << ", " << i;
    }
}

// Along random directions of each input.
TEST(DeltaRule, BackwardIsTheRecurrencesDerivative) {
  for (const auto& [sequences, tokens] : sizes)
    for (const bool several : {false, true}) {
      Rule rule(sequences, tokens);
      const Inputs in = inputs_of(rule.shape, several);
      const Numbers d_out = drawn(std::ssize(recurrence(rule.shape, in)), 9, 1);
      Rule::Slopes slopes;
      rule.run(in, &d_out, &slopes);
      const auto check = [&](Numbers Inputs::*member, const Numbers& gradient, const char* name) {
        const Numbers direction = drawn(std::ssize(in.*member), 11, 1);
        double size = 0;
        for (std::size_t i = 0; i < gradient.size(); ++i) size += std::abs(gradient[i] * direction[i]);
        const double numeric = derivative([&](double e) {
          Inputs changed = in;
          changed.*member = moved(in.*member, e, direction);
          return dot(d_out, recurrence(rule.shape, changed));
        });
        EXPECT_NEAR(dot(gradient, direction), numeric, 1e-8 * (size + 1))
            << name << ", " << sequences << " x " << tokens << ", " << several;
      };
      check(&Inputs::mixed, slopes.mixed, "q, k, v");
      check(&Inputs::b, slopes.b, "b");
      check(&Inputs::a, slopes.a, "a");
      Numbers decay(static_cast<std::size_t>(rule.shape.value_heads), 0), bias = decay;
      for (std::size_t i = 0; i < slopes.a.size(); ++i) {
        decay[i % decay.size()] += slopes.decay[i];
        bias[i % bias.size()] += slopes.a[i];
      }
      check(&Inputs::log_decay, decay, "log_decay");
      check(&Inputs::time_bias, bias, "time_bias");
    }
}

}  // namespace
}  // namespace forge::test
