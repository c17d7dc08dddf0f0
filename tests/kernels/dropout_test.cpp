#include <cmath>

#include "core/random.hpp"
#include "fixture.hpp"
#include "kernels/kernels.hpp"

namespace forge {
namespace {

using namespace reference;

struct Rows {
  Field<std::int64_t> samples;
  Field<std::int32_t> positions;
  Rows(const Values& s, const Values& p)
      : samples(1, static_cast<std::int64_t>(s.size()), s), positions(1, static_cast<std::int64_t>(p.size()), p) {}
  Dropout how(double rate, std::uint64_t key, std::int64_t first = 0) const {
    return {rate, key, samples.vector(), positions.vector(), first};
  }
};

// The mask by its definition: word (column mod 4) of the draw (sample, position, column / 4).
bool kept(std::uint64_t key, double sample, double position, std::int64_t column, double rate) {
  const auto words = philox({{static_cast<std::uint32_t>(static_cast<std::uint64_t>(sample)),
                              static_cast<std::uint32_t>(static_cast<std::uint64_t>(sample) >> 32),
                              static_cast<std::uint32_t>(column / 4), static_cast<std::uint32_t>(position)}},
                            key);
  return words[static_cast<int>(column % 4)] >= rate * 4294967296.0;
}

template <class T>
void check_dropout(std::int64_t C, double rate) {
  using N = Tracked<acc_t<T>>;
  const Values samples{0, 0, 5, 8589934592.0 + 3}, positions{0, 1, 1, 100000};
  const auto R = static_cast<std::int64_t>(samples.size());
  const Rows rows(samples, positions);
  Field<T> x(R, C, normal_values(R * C, 1), 1), residual(R, C, normal_values(R * C, 2), 2), y(R, C, 3), out(R, C, 4);
  Stream s(2);
  dropout<T>(s, x.view(), y.view(), rows.how(rate, 42));
  residual_add<T>(s, residual.view(), x.view(), out.view(), rows.how(rate, 42));
  const Values xs = x.read(s), rs = residual.read(s);
  std::vector<N> dropped, added;
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t j = 0; j < C; ++j) {
      const bool keeps = rate == 0 || kept(42, samples[r], positions[r], j, rate);
      const N scale = rate == 0 ? N(1.0) : constant<N>(1 / (1 - rate));
      dropped.push_back(keeps ? N(xs[r * C + j]) * scale : N(0.0));
      added.push_back(N(rs[r * C + j]) + dropped.back());
    }
  expect_close<T>(y.read(s), dropped, "dropout");
  expect_close<T>(out.read(s), added, "residual_add");
  dropout<T>(s, x.view(), x.view(), rows.how(rate, 42));
  EXPECT_TRUE(same_bits(x.read(s), y.read(s))) << "in place";
  x.write(xs);
  residual_add<T>(s, residual.view(), x.view(), x.view(), rows.how(rate, 42));
  EXPECT_TRUE(same_bits(x.read(s), out.read(s))) << "out over x";
  x.write(xs);
  residual_add<T>(s, residual.view(), x.view(), residual.view(), rows.how(rate, 42));
  EXPECT_TRUE(same_bits(residual.read(s), out.read(s))) << "out over residual";
}

TEST(Dropout, follows_its_definition) {
  for (const std::int64_t C : {1, 3, 4, 17, 64, 127})
    for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
      SCOPED_TRACE(::testing::Message() << C << " columns, rate " << rate);
      check_dropout<double>(C, rate);
      check_dropout<float>(C, rate);
      check_dropout<bf16>(C, rate);
    }
}

// A part of a row's columns has that part of its mask.
TEST(Dropout, of_a_part_of_the_columns) {
  const Rows rows({0, 7}, {3, 100000});
  const std::int64_t C = 37;
  Field<double> x(2, C, normal_values(2 * C, 1), 1), y(2, C, 3), out(2, C, 4);
  Stream s(2);
  dropout<double>(s, x.view(), y.view(), rows.how(0.4, 42));
  const Values whole = y.read(s);
  for (std::int64_t begin = 0; begin < 9; ++begin)
    for (const std::int64_t end : {begin, begin + 1, begin + 3, begin + 11, C}) {
      const auto part = [&](Field<double>& f) {
        return View<double, 2>(f.view().data + begin, {{2, end - begin}}, f.view().pitch);
      };
      out.write(Values(static_cast<std::size_t>(2 * C), 0.0));
      dropout<double>(s, part(x), part(out), rows.how(0.4, 42, begin));
      const Values values = out.read(s);
      for (std::int64_t i = 0; i < 2 * C; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const bool inside = i % C >= begin && i % C < end;
        EXPECT_EQ(values[at], inside ? whole[at] : 0) << begin << ".." << end << ", element " << i;
      }
    }
}

Values mask_of(double rate, std::uint64_t key, std::int64_t R, std::int64_t C) {
  Values samples, positions;
  for (std::int64_t r = 0; r < R; ++r) {
    samples.push_back(static_cast<double>(r / 16));
    positions.push_back(static_cast<double>(r % 16));
  }
  const Rows rows(samples, positions);
  Field<float> x(R, C, Values(static_cast<std::size_t>(R * C), 1.0));
  Stream s(2);
  dropout<float>(s, x.view(), x.view(), rows.how(rate, key));
  return x.read(s);
}

// The share of kept elements is binomial: within six standard deviations (2e-9), also down the columns and along rows.
TEST(Dropout, keeps_the_share_it_says) {
  const std::int64_t R = 256, C = 256;
  for (const double rate : {0.1, 0.5, 0.9}) {
    const Values mask = mask_of(rate, 7, R, C);
    const auto check = [&](double count, double n) {
      EXPECT_LE(std::abs(count - n * (1 - rate)), 6 * std::sqrt(n * rate * (1 - rate)) + 1);
    };
    const auto share = [&](std::int64_t begin, std::int64_t stride, std::int64_t n) {
      double count = 0;
      for (std::int64_t i = 0; i < n; ++i) count += mask[static_cast<std::size_t>(begin + i * stride)] != 0;
      check(count, static_cast<double>(n));
    };
    share(0, 1, R * C);
    for (std::int64_t i = 0; i < 256; ++i) {
      share(i, C, R);
      share(i * C, 1, C);
    }
    const Values other = mask_of(rate, 8, R, C);  // another key: independent of the first
    double both = 0;
    for (std::size_t i = 0; i < mask.size(); ++i) both += mask[i] != 0 && other[i] != 0;
    const double p = (1 - rate) * (1 - rate), n = static_cast<double>(R * C);
    EXPECT_LE(std::abs(both - n * p), 6 * std::sqrt(n * p * (1 - p)));
  }
}

TEST(Dropout, any_number_of_threads_gives_the_same_bits) {
  const Rows rows(Values(33, 4.0), normal_values(33, 1, 0));
  expect_same_on_any_threads([&](Stream& s) {
    Field<float> x(33, 127, normal_values(33 * 127, 1));
    dropout<float>(s, x.view(), x.view(), rows.how(0.3, 5));
    residual_add<float>(s, x.view(), x.view(), x.view(), rows.how(0.3, 6));
    s.synchronize();
    return x.read(s);
  });
}

}  // namespace
}  // namespace forge
