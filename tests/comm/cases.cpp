#include "cases.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/normal.hpp"
#include "device/device_memory.hpp"

namespace forge::comm_cases {

namespace {

using Values = std::vector<double>;

// Values in device memory.
template <class T>
class Field {
 public:
  Field(Stream& stream, const Values& values) : stream_(stream), count_(values.size()), memory_(bytes()) {
    std::vector<T> converted;
    for (const double v : values) converted.push_back(T(v));
    copy_to_device(stream, memory_.data(), converted.data(), bytes());
    stream.synchronize();
  }
  Field(Stream& stream, std::int64_t count, double value)
      : Field(stream, Values(static_cast<std::size_t>(count), value)) {}

  T* at(std::int64_t i) const { return reinterpret_cast<T*>(memory_.data()) + i; }
  Values read() const {
    std::vector<T> values(count_);
    copy_to_host(stream_, values.data(), memory_.data(), bytes());
    stream_.synchronize();
    Values result;
    for (const T& v : values) result.push_back(static_cast<double>(v));
    return result;
  }
  std::string raw() const {
    std::string text(bytes(), ' ');
    copy_to_host(stream_, text.data(), memory_.data(), bytes());
    stream_.synchronize();
    return text;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }
  Stream& stream_;
  std::size_t count_;
  Buffer memory_;
};

// Small integers that tell ranks and places apart: all sums of up to 8 ranks are exact, in bf16 too (at most 180).
double number(int rank, std::int64_t i) {
  return static_cast<double>((rank + 1) * (i % 5 + 1));
}

Values numbers(int rank, std::int64_t begin, std::int64_t count) {
  Values values;
  for (std::int64_t i = begin; i < begin + count; ++i) values.push_back(number(rank, i));
  return values;
}

Values sums(int size, std::int64_t begin, std::int64_t count) {
  Values values;
  const int ranks = size * (size + 1) / 2;
  for (std::int64_t i = begin; i < begin + count; ++i)
    values.push_back(static_cast<double>(ranks) * static_cast<double>(i % 5 + 1));
  return values;
}

void append(Values& to, const Values& more) {
  to.insert(to.end(), more.begin(), more.end());
}

template <class T>
void reductions(Communicator& ranks, Stream& stream, std::int64_t count) {
  const int rank = ranks.rank(), size = ranks.size();
  const DType type = dtype_of<T>;
  {
    const Field<T> data(stream, numbers(rank, 0, count));
    ranks.all_reduce(stream, data.at(0), count, type);
    EXPECT_EQ(data.read(), sums(size, 0, count)) << name_of(type) << " x " << count;
  }
  if constexpr (std::is_floating_point_v<T>) {
    const Field<T> data(stream, numbers(rank, 0, count));
    ranks.all_reduce_max(stream, data.at(0), count, type);
    EXPECT_EQ(data.read(), numbers(size - 1, 0, count)) << name_of(type) << " x " << count;
  }
  const Values all = numbers(rank, 0, size * count);
  for (const bool in_place : {false, true}) {
    const Field<T> in(stream, all), out(stream, count, -1);
    T* to = in_place ? in.at(rank * count) : out.at(0);
    ranks.reduce_scatter(stream, in.at(0), to, count, type);
    const Values got = in_place ? in.read() : out.read();
    const auto begin = got.begin() + (in_place ? rank * count : 0);
    EXPECT_EQ(Values(begin, begin + count), sums(size, rank * count, count)) << name_of(type) << " x " << count;
    for (std::int64_t i = 0; in_place && i < size * count; ++i)
      if (i / count != rank) {
        EXPECT_EQ(got[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(i)]);
      }
  }
  const std::int64_t blocks = 3;
  const Field<T> data(stream, numbers(rank, 0, blocks * size * count));
  ranks.reduce_scatter_blocks(stream, data.at(0), blocks, count, type);
  const Values got = data.read();
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = (b * size + rank) * count;
    EXPECT_EQ(Values(got.begin() + begin, got.begin() + begin + count),
              size > 1 ? sums(size, begin, count) : numbers(0, begin, count))
        << name_of(type) << " x " << count << ", block " << b;
  }
}

template <class T>
void copies(Communicator& ranks, Stream& stream, std::int64_t count) {
  const int rank = ranks.rank(), size = ranks.size();
  const DType type = dtype_of<T>;
  Values gathered, exchanged;
  for (int r = 0; r < size; ++r) {
    append(gathered, numbers(r, 0, count));
    append(exchanged, numbers(r, rank * count, count));
  }
  for (const bool in_place : {false, true}) {
    const Field<T> in(stream, numbers(rank, 0, count)), out(stream, size * count, 0);
    if (in_place) copy_on_device(stream, out.at(rank * count), in.at(0), static_cast<std::size_t>(count) * sizeof(T));
    ranks.all_gather(stream, in_place ? out.at(rank * count) : in.at(0), out.at(0), count, type);
    EXPECT_EQ(out.read(), gathered) << name_of(type) << " x " << count;
  }
  for (int root = 0; root < size; ++root) {
    const Field<T> data(stream, numbers(rank, 0, count));
    ranks.broadcast(stream, data.at(0), count, type, root);
    EXPECT_EQ(data.read(), numbers(root, 0, count)) << "from " << root;
  }
  const Field<T> in(stream, numbers(rank, 0, size * count)), out(stream, size * count, 0);
  ranks.all_to_all(stream, in.at(0), out.at(0), count, type);
  EXPECT_EQ(out.read(), exchanged);
}

// Rank a sends a + 2 b + 1 elements to rank b, and nothing where (a + b) is a multiple of 3.
std::int64_t uneven(int from, int to, std::int64_t scale) {
  return (from + to) % 3 == 0 ? 0 : scale * (from + 2 * to + 1);
}

void uneven_exchange(Communicator& ranks, Stream& stream, std::int64_t scale) {
  const int rank = ranks.rank(), size = ranks.size();
  std::vector<std::int64_t> send_counts, receive_counts;
  Values values, expected;
  for (int r = 0; r < size; ++r) {
    send_counts.push_back(uneven(rank, r, scale));
    receive_counts.push_back(uneven(r, rank, scale));
    append(values, Values(static_cast<std::size_t>(send_counts.back()), 100.0 * rank + r));
    append(expected, Values(static_cast<std::size_t>(receive_counts.back()), 100.0 * r + rank));
  }
  const Field<float> from(stream, values), to(stream, Values(expected.size(), -1));
  ranks.all_to_all(stream, from.at(0), send_counts, to.at(0), receive_counts, DType::f32);
  EXPECT_EQ(to.read(), expected);
  const Field<float> first(stream, Values(expected.size(), -1)), second(stream, Values(expected.size(), -1));
  std::vector<Communicator::Part> out, in, more;
  std::int64_t sent = 0, got = 0, calls = ranks.traffic().total_calls();
  for (std::size_t r = 0; r < send_counts.size(); sent += send_counts[r], got += receive_counts[r], ++r) {
    out.push_back({from.at(sent), send_counts[r]});
    in.push_back({first.at(got), receive_counts[r]});
    more.push_back({second.at(got), receive_counts[r]});
  }
  ranks.all_to_all(stream, std::vector<Communicator::Exchange>{{out, in, DType::f32}, {out, more, DType::f32}});
  for (const auto* field : {&first, &second}) EXPECT_EQ(field->read(), expected);
  EXPECT_EQ(ranks.traffic().total_calls(), calls + 1) << "two exchanges, one call";
}

}  // namespace

void all_operations(Communicator& ranks, Stream::Kind kind) {
  Stream stream(1, kind);
  for (const std::int64_t count : {0, 1, 5, 1001}) {
    reductions<double>(ranks, stream, count);
    reductions<float>(ranks, stream, count);
    reductions<bf16>(ranks, stream, count);
    reductions<std::int32_t>(ranks, stream, count);
    reductions<std::int64_t>(ranks, stream, count);
    copies<double>(ranks, stream, count);
    copies<bf16>(ranks, stream, count);
    copies<std::uint16_t>(ranks, stream, count);
    copies<std::uint8_t>(ranks, stream, count);
  }
  reductions<float>(ranks, stream, 300007);
  copies<float>(ranks, stream, 300007);
  uneven_exchange(ranks, stream, 1);
  uneven_exchange(ranks, stream, 501);
  std::int64_t n = 4;
  EXPECT_THROW(ranks.all_reduce(stream, &n, 1, DType::u8), Error);
  EXPECT_THROW(ranks.broadcast(stream, &n, 1, DType::i64, ranks.size()), Error);
  EXPECT_THROW(ranks.send(stream, &n, 1, DType::i64, -1), Error);
}

template <class T>
void repeatable(Communicator& ranks, std::int64_t count) {
  Stream stream;
  const int size = ranks.size();
  Values mine, exact(static_cast<std::size_t>(count)), absolute(static_cast<std::size_t>(count));
  for (int r = 0; r < size; ++r)
    for (std::int64_t i = 0; i < count; ++i) {
      const double value =
          static_cast<double>(T(normal(static_cast<std::uint64_t>(r) + 7, static_cast<std::uint64_t>(i))));
      if (r == ranks.rank()) mine.push_back(value);
      exact[static_cast<std::size_t>(i)] += value;
      absolute[static_cast<std::size_t>(i)] += std::abs(value);
    }
  std::string first;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Field<T> data(stream, mine);
    ranks.all_reduce(stream, data.at(0), count, dtype_of<T>);
    const std::string bits = data.raw();
    if (repeat == 0) first = bits;
    EXPECT_EQ(bits, first);
    for (const auto& other : ranks.gather_host(bits)) EXPECT_EQ(other, first) << "ranks disagree";
    // Size additions, each rounded: |error| <= size u Σ|x|.
    const double u = std::is_same_v<T, double> ? 0x1p-53 : std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;
    const Values got = data.read();
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_LE(std::abs(got[i] - exact[i]), 1.01 * size * (u + 0x1p-53) * absolute[i]);
  }
}

void sums_are_repeatable(Communicator& ranks) {
  for (const std::int64_t count : {3, 1000}) {
    repeatable<double>(ranks, count);
    repeatable<float>(ranks, count);
    repeatable<bf16>(ranks, count);
  }
}

void transfers(Communicator& ranks, Stream::Kind kind) {
  Stream stream(1, kind);
  const int rank = ranks.rank(), size = ranks.size();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  for (const std::int64_t count : {0, 1, 7, 5000}) {
    const Field<float> out(stream, numbers(rank, 0, count)), from_left(stream, count, -1),
        from_right(stream, count, -1);
    // Sends come first everywhere, which only a group may do: a send waits for its receive.
    ranks.group_begin();
    ranks.send(stream, out.at(0), count, DType::f32, right);
    ranks.send(stream, out.at(0), count, DType::f32, left);
    ranks.receive(stream, from_left.at(0), count, DType::f32, left);
    ranks.receive(stream, from_right.at(0), count, DType::f32, right);
    ranks.group_end(stream);
    EXPECT_EQ(from_left.read(), numbers(left, 0, count));
    EXPECT_EQ(from_right.read(), numbers(right, 0, count));
    // A chain of single messages, two a pair: they come in the order given.
    const Field<double> first(stream, count, rank == 0 ? 1 : 0), second(stream, count, rank == 0 ? 2 : 0);
    if (rank > 0) {
      ranks.receive(stream, first.at(0), count, DType::f64, rank - 1);
      ranks.receive(stream, second.at(0), count, DType::f64, rank - 1);
    }
    if (rank + 1 < size) {
      ranks.send(stream, first.at(0), count, DType::f64, rank + 1);
      ranks.send(stream, second.at(0), count, DType::f64, rank + 1);
    }
    EXPECT_EQ(first.read(), Values(static_cast<std::size_t>(count), 1));
    EXPECT_EQ(second.read(), Values(static_cast<std::size_t>(count), 2));
  }
  EXPECT_THROW(ranks.group_end(stream), Error);
}

void splits(Communicator& ranks) {
  Stream stream;
  const int rank = ranks.rank(), size = ranks.size();
  const auto parity = ranks.split(rank % 2, -rank);  // reversed
  const int members = (size + 1 - rank % 2) / 2;
  EXPECT_EQ(parity->size(), members);
  EXPECT_EQ(parity->rank(), members - 1 - rank / 2);
  const auto alone = ranks.split(rank == 0 ? 5 : -1, 0);
  EXPECT_EQ(alone == nullptr, rank != 0);
  if (alone) {
    EXPECT_EQ(alone->size(), 1);
  }
  const auto again = parity->duplicate();
  EXPECT_EQ(again->rank(), parity->rank());
  double expected = 0;
  for (int r = rank % 2; r < size; r += 2) expected += r;
  for (Communicator* part : {parity.get(), again.get()}) {
    const Field<double> data(stream, 9, rank);
    part->all_reduce(stream, data.at(0), 9, DType::f64);
    EXPECT_EQ(data.read(), Values(9, expected));
    EXPECT_EQ(part->gather_host(std::to_string(rank)).back(), std::to_string(rank % 2));
  }
}

void overlap(Communicator& ranks) {
  const auto other = ranks.duplicate();
  Stream compute, first(1, Stream::Kind::Worker), second(1, Stream::Kind::Worker);
  constexpr std::int64_t count = 20011;
  const int rank = ranks.rank(), size = ranks.size();
  const Field<float> a(compute, numbers(rank, 0, count)), b(compute, numbers(rank, 0, count));
  for (int round = 0; round < 5; ++round) {
    Event ready, done;
    ready.record(compute);
    ready.wait(first);
    ready.wait(second);
    ranks.all_reduce(first, a.at(0), count, DType::f32);
    other->broadcast(second, b.at(0), count, DType::f32, round % size);
    ranks.broadcast(first, a.at(0), count, DType::f32, 0);
    std::int64_t agreed = round;
    ranks.max_host({&agreed, 1});  // host values don't disturb what is under way
    EXPECT_EQ(agreed, round);
    done.record(first);
    done.wait(compute);
    first.synchronize();
    second.synchronize();
    EXPECT_EQ(a.read(), sums(size, 0, count));
    EXPECT_EQ(b.read(), numbers(0, 0, count));
    const Field<float> fresh(compute, numbers(rank, 0, count));
    copy_on_device(compute, a.at(0), fresh.at(0), count * sizeof(float));
    compute.synchronize();
  }
}

void traffic(Communicator& ranks) {
  const auto counted = ranks.duplicate();
  Stream stream;
  const std::int64_t size = ranks.size(), others = size - 1;
  const Field<float> data(stream, 8 * size, 1), more(stream, 8 * size, 1);
  EXPECT_EQ(counted->bytes_sent(), 0);
  counted->all_reduce(stream, data.at(0), 8 * size, DType::f32);
  counted->all_gather(stream, more.at(0), data.at(0), 8, DType::f32);
  counted->reduce_scatter(stream, data.at(0), more.at(0), 8, DType::f32);
  counted->reduce_scatter_blocks(stream, data.at(0), 4, 2, DType::f32);
  counted->broadcast(stream, data.at(0), 10, DType::bf16, 0);
  counted->all_to_all(stream, data.at(0), more.at(0), 8, DType::f32);
  stream.synchronize();
  const Traffic& t = counted->traffic();
  const auto bytes = [&](Collective c) { return t.bytes[static_cast<std::size_t>(c)]; };
  EXPECT_EQ(bytes(Collective::all_reduce), 2 * 8 * others * 4);
  EXPECT_EQ(bytes(Collective::all_gather), 8 * others * 4);
  EXPECT_EQ(bytes(Collective::reduce_scatter), 2 * 8 * others * 4);
  EXPECT_EQ(t.calls[static_cast<std::size_t>(Collective::reduce_scatter)], 2);
  EXPECT_EQ(bytes(Collective::broadcast), ranks.rank() == 0 && size > 1 ? 20 : 0);
  EXPECT_EQ(bytes(Collective::all_to_all), 8 * others * 4);
  EXPECT_EQ(bytes(Collective::send), 0);
  for (const Collective c : {Collective::all_reduce, Collective::all_to_all})
    EXPECT_EQ(t.calls[static_cast<std::size_t>(c)], 1);
  EXPECT_EQ(counted->bytes_sent(), std::accumulate(t.bytes.begin(), t.bytes.end(), std::int64_t{0}));
}

void everything(Communicator& ranks) {
  for (const auto kind : {Stream::Kind::Inline, Stream::Kind::Worker}) {
    all_operations(ranks, kind);
    transfers(ranks, kind);
  }
  sums_are_repeatable(ranks);
  host_operations(ranks);
  splits(ranks);
  overlap(ranks);
  traffic(ranks);
  host_traffic(ranks);
}

}  // namespace forge::comm_cases
