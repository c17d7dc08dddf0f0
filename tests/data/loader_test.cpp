#include "data/loader.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "core/random.hpp"
#include "data/validation.hpp"
#include "files.hpp"

// Counts allocations of the whole process while `counting_allocations` is on: the loader must make none.
// Not inlined, or the compiler takes an operator's free() for a mistake of its caller.
namespace {
std::atomic<bool> counting_allocations{false};
std::atomic<long> allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (counting_allocations) ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (counting_allocations) ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace forge {
namespace {

using namespace test;

constexpr std::int64_t T = 7;
constexpr std::int64_t V = 5003;

// Two files whose tokens are all different, 23 + 11 samples of T tokens.
TokenSet make_set(const Directory& dir, std::int64_t document_end = -1) {
  auto tokens = counting<std::uint16_t>(23 * T + 4);
  write_tokens(dir / "a.bin", tokens);
  for (auto& token : tokens) token = static_cast<std::uint16_t>(token + 1000);
  tokens.resize(11 * T + 1);
  write_tokens(dir / "b.bin", tokens);
  return TokenSet({{dir / "a.bin", dir / "b.bin"}, TokenType::uint16, T, V, document_end});
}

SampleStream one(const TokenSet& set, const SampleSequence& sequence) {
  return SampleStream(DataSource{"", &set, sequence});
}

std::vector<std::int32_t> expected_sample(const TokenSet& set, std::int64_t sample) {
  std::vector<std::int32_t> out(T + 1);
  set.read(sample, out);
  return out;
}

TEST(Loader, EveryDataParallelSizeReadsTheSameGlobalBatchInTheSameOrder) {
  const Directory dir;
  const TokenSet set = make_set(dir);
  const std::int64_t G = 36, steps = 4;  // 144 places: four epochs and more of the 34 samples
  for (const SampleOrder order : {SampleOrder::sequential, SampleOrder::shuffled}) {
    const SampleSequence sequence{order, 42, set.samples()};
    for (const std::int64_t ranks : {1, 2, 3, 4})
      for (const std::int64_t b : {1, 3}) {
        std::vector<std::unique_ptr<Loader>> loaders;
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          loaders.push_back(std::make_unique<Loader>(one(set, sequence), BatchShare{G, b, ranks, rank}, 1, steps));
        for (std::int64_t step = 1; step <= steps; ++step) {
          std::vector<const HostBatch*> batches;
          for (auto& loader : loaders) batches.push_back(&loader->next());
          std::int64_t place = (step - 1) * G;
          for (std::int64_t m = 0; m < batches[0]->microbatches(); ++m)
            for (std::int64_t rank = 0; rank < ranks; ++rank)
              for (std::int64_t s = 0; s < b; ++s, ++place) {
                const HostBatch& batch = *batches[static_cast<std::size_t>(rank)];
                const auto sample = expected_sample(set, sequence.at(place));
                for (std::int64_t t = 0; t < T; ++t) {
                  const auto row = static_cast<std::size_t>((m * b + s) * T + t);
                  ASSERT_EQ(batch.tokens[row], sample[static_cast<std::size_t>(t)]);
                  ASSERT_EQ(batch.labels[row], sample[static_cast<std::size_t>(t) + 1]);
                  ASSERT_EQ(batch.positions[row], t);
                  ASSERT_EQ(batch.documents[row], 0);
                  ASSERT_EQ(batch.samples[row], place);
                }
              }
          ASSERT_EQ(place, step * G);
          for (const HostBatch* batch : batches) ASSERT_EQ(batch->label_count, G / ranks * T);
        }
      }
  }
}

TEST(Loader, GoesOnAtAnyStepWithoutState) {
  const Directory dir;
  const TokenSet set = make_set(dir);
  const SampleSequence sequence{SampleOrder::shuffled, 1, set.samples()};
  Loader whole(one(set, sequence), {4, 2, 1, 0}, 1, 20);
  for (std::int64_t step = 1; step <= 20; ++step) {
    const HostBatch& batch = whole.next();
    EXPECT_EQ(whole.step(), step);
    Loader part(one(set, sequence), {4, 2, 1, 0}, step, step);
    EXPECT_EQ(part.next().tokens, batch.tokens);
    EXPECT_THROW(part.next(), Error);
  }
}

TEST(Loader, DocumentsEndBehindTheirEndToken) {
  const Directory dir;
  const std::int32_t e = 9;
  write_tokens(dir / "a.bin", std::vector<std::uint16_t>{9, 1, 2, 9, 9, 3, 4, 5, 6, 7, 9, 9});
  const TokenSet set({{dir / "a.bin"}, TokenType::uint16, T - 2, 10, e});
  ASSERT_EQ(set.samples(), 2);
  Loader loader(one(set, {SampleOrder::sequential, 0, 2}), {2, 2, 1, 0}, 1, 1);
  const HostBatch& batch = loader.next();
  using Ids = PinnedVector<std::int32_t>;
  EXPECT_EQ(batch.tokens, (Ids{9, 1, 2, 9, 9, 3, 4, 5, 6, 7}));
  EXPECT_EQ(batch.labels, (Ids{-1, 2, 9, -1, -1, 4, 5, 6, 7, 9}));
  EXPECT_EQ(batch.documents, (Ids{0, 1, 1, 1, 2, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  EXPECT_EQ(batch.label_count, 7);
}

// Depth d sees token t + d and label t + 1 + d of the sample, as far as they stand in the row's own document.
TEST(Loader, ShiftedRows) {
  const Directory dir;
  const std::int32_t e = 9, length = 12;
  std::vector<std::uint16_t> tokens;
  for (std::uint64_t i = 0; i < 6 * length + 1; ++i) tokens.push_back(i % 7 == 4 ? e : mix(3, i) % 9);
  write_tokens(dir / "a.bin", tokens);
  for (const std::int32_t end_token : {e, -1})
    for (const int cp : {1, 2, 3})
      for (const Range vocabulary : {Range{0, 10}, Range{4, 8}}) {
        const TokenSet set({{dir / "a.bin"}, TokenType::uint16, length, 10, end_token});
        std::vector<std::int64_t> labels(4, 0);
        for (int cp_rank = 0; cp_rank < cp; ++cp_rank) {
          RowShare share;
          share.cp = cp;
          share.cp_rank = cp_rank;
          share.vocabulary = vocabulary;
          share.mtp_depth = 4;
          Loader loader(one(set, {SampleOrder::sequential, 0, 6}), {6, 3, 1, 0}, 1, 1, share);
          const HostBatch& batch = loader.next();
          ASSERT_EQ(batch.shifted.size(), 4u);
          for (std::int64_t d = 1; d <= 4; ++d) {
            const ShiftedRows& rows = batch.shifted[static_cast<std::size_t>(d - 1)];
            std::int64_t count = 0;
            for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
              const auto first = static_cast<std::size_t>(batch.samples[i] * length),
                         t = static_cast<std::size_t>(batch.positions[i]);
              // The row sees a token or label s ahead where no document ends before it.
              const auto sees = [&](std::size_t s) {
                if (t + s > static_cast<std::size_t>(length)) return false;
                for (std::size_t j = t; j < t + s; ++j)
                  if (tokens[first + j] == end_token) return false;
                return true;
              };
              const auto ahead = static_cast<std::size_t>(d);
              const std::int64_t token = sees(ahead) ? tokens[first + t + ahead] : -1;
              const bool here = token >= vocabulary.begin && token < vocabulary.end;
              ASSERT_EQ(rows.tokens[i], here ? token - vocabulary.begin : foreign_token);
              ASSERT_EQ(rows.labels[i], sees(ahead + 1) ? tokens[first + t + ahead + 1] : masked_label);
              count += rows.labels[i] != masked_label;
            }
            labels[static_cast<std::size_t>(d - 1)] += count;
            // Every rank counts the labels of all.
            if (cp_rank + 1 == cp) {
              ASSERT_EQ(batch.label_counts().mtp[static_cast<std::size_t>(d - 1)],
                        labels[static_cast<std::size_t>(d - 1)]);
            }
            for (std::int64_t m = 0; m < batch.microbatches(); ++m) {
              const auto keys = batch.of_microbatch(rows.tokens, m), order = batch.of_microbatch(rows.token_order, m);
              for (std::size_t i = 1; i < order.size(); ++i) {
                const auto a = keys[static_cast<std::size_t>(order[i - 1])],
                           b = keys[static_cast<std::size_t>(order[i])];
                ASSERT_TRUE(a < b || (a == b && order[i - 1] < order[i]));
              }
            }
          }
        }
      }
}

TEST(Loader, RowsAreSortedByTokenAndByPosition) {
  const Directory dir;
  write_tokens(dir / "a.bin", counting<std::uint16_t>(8 * 13 + 1, 5));
  const TokenSet set({{dir / "a.bin"}, TokenType::uint16, 13, 5, -1});
  Loader loader(one(set, {SampleOrder::shuffled, 0, 8}), {8, 4, 1, 0}, 1, 1);
  const HostBatch& batch = loader.next();
  for (std::int64_t m = 0; m < 2; ++m)
    for (const auto& [keys, order] :
         {std::pair{batch.of_microbatch(batch.tokens, m), batch.of_microbatch(batch.token_order, m)},
          std::pair{batch.of_microbatch(batch.positions, m), batch.of_microbatch(batch.position_order, m)}}) {
      std::vector<std::int32_t> expected = counting<std::int32_t>(keys.size());
      std::stable_sort(expected.begin(), expected.end(), [&, k = keys](std::int32_t a, std::int32_t b) {
        return k[static_cast<std::size_t>(a)] < k[static_cast<std::size_t>(b)];
      });
      EXPECT_TRUE(std::equal(order.begin(), order.end(), expected.begin(), expected.end()));
    }
}

TEST(Loader, AllocatesNothingInTheSteadyState) {
  const Directory dir;
  const TokenSet set = make_set(dir);
  Loader loader(one(set, {SampleOrder::shuffled, 3, set.samples()}), {8, 2, 2, 1}, 1, 300);
  loader.next();
  loader.next();
  allocations = 0;
  counting_allocations = true;
  std::int64_t labels = 0;
  for (int step = 3; step <= 300; ++step) labels += loader.next().label_count;
  counting_allocations = false;
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(labels, 298 * 4 * T);
}

TEST(Loader, AnErrorAppearsAtTheStepThatItConcerns) {
  const Directory dir;
  auto tokens = counting<std::uint16_t>(20 * T + 1, 100);
  tokens[13 * T + 2] = 100;
  write_tokens(dir / "a.bin", tokens);
  const TokenSet set({{dir / "a.bin"}, TokenType::uint16, T, 100, -1});
  Loader loader(one(set, {SampleOrder::sequential, 0, 20}), {4, 4, 1, 0}, 1, 100);
  for (int step = 1; step <= 3; ++step) EXPECT_EQ(loader.next().label_count, 4 * T);
  for (int again = 0; again < 2; ++again)
    expect_mentions(refusal([&] { loader.next(); }), {"a.bin", "token " + std::to_string(13 * T + 2),
                                                      "byte offset " + std::to_string(2 * (13 * T + 2))});
}

TEST(Loader, AnErrorBehindTheLastStepIsNotSeen) {
  const Directory dir;
  auto tokens = counting<std::uint16_t>(8 * T + 1, 100);
  tokens[5 * T] = 100;  // in samples 4 (as a label) and 5
  write_tokens(dir / "a.bin", tokens);
  const TokenSet set({{dir / "a.bin"}, TokenType::uint16, T, 100, -1});
  Loader loader(one(set, {SampleOrder::sequential, 0, 8}), {4, 4, 1, 0}, 1, 1);
  EXPECT_EQ(loader.next().label_count, 4 * T);
}

TEST(Loader, LeavesEarlyWithoutWaiting) {
  const Directory dir;
  const TokenSet set = make_set(dir);
  for (int i = 0; i < 50; ++i) {
    Loader loader(one(set, {SampleOrder::shuffled, 3, set.samples()}), {2, 2, 1, 0}, 1, 1000000);
    if (i % 2 == 1) loader.next();
  }
}

// Behind a document of 9 tokens, on every cp rank; what its mask leaves out of the labels is no filler.
TEST(Loader, FillerHasNoSample) {
  const Directory dir;
  constexpr std::int64_t length = 24;
  std::vector<std::uint16_t> tokens(9, 5);
  tokens.back() = 3;
  write_tokens(dir / "a.bin", tokens);
  write_text(dir / "mask.npy", npy(std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0, 1, 1, 0}, "|u1"));
  TokenSetOptions options{{dir / "a.bin"}, TokenType::uint16, length, 10, 3};
  options.mask_files = {dir / "mask.npy"};
  options.packing = Packing::best_fit;
  options.packing_directory = dir / "plans";
  const TokenSet set(options);
  for (const auto& [cp, inner] : {std::pair{1, 1}, {2, 1}, {3, 1}, {2, 2}, {3, 3}, {4, 2}, {6, 3}, {6, 2}})
    for (int cp_rank = 0; cp_rank < cp; ++cp_rank) {
      RowShare share;
      share.cp = cp;
      share.cp_rank = cp_rank;
      share.cp_inner = inner;
      share.whole_documents = true;
      Loader loader(one(set, {SampleOrder::sequential, 0, 1}), {1, 1, 1, 0}, 1, 1, share);
      const HostBatch& batch = loader.next();
      EXPECT_EQ(batch.token_count, 9);
      EXPECT_EQ(batch.label_count, 2);
      EXPECT_EQ(batch.label_counts().tokens, 9);
      for (std::size_t i = 0; i < batch.samples.size(); ++i)
        EXPECT_EQ(batch.samples[i], batch.positions[i] < 9 ? 0 : -1);
      for (std::size_t i = 0; i < batch.key_samples.size(); ++i)
        EXPECT_EQ(batch.key_samples[i], batch.key_positions[i] < 9 ? 0 : -1);
      EXPECT_EQ(batch.key_samples.size(), inner > 1 ? 24u : 0u);
      ASSERT_EQ(batch.whole_documents.size(), cp > 1 ? 24u : 0u);
      for (std::size_t i = 0; i < batch.whole_documents.size(); ++i) EXPECT_EQ(batch.whole_documents[i], i < 9 ? 0 : 1);
    }
}

TEST(ValidationSet, RanksCoverTheSameSamplesAndPadTheRest) {
  const Directory dir;
  const TokenSet set = make_set(dir);
  for (const std::int64_t ranks : {1, 2, 3, 4})
    for (const std::int64_t sequences : {0, 1, 13, 34}) {
      const std::int64_t b = 2, count = sequences == 0 ? 34 : sequences;
      std::vector<int> seen(34);
      std::int64_t labels = 0, tokens = 0, microbatches = -1;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        ValidationBatches batches(b, T, set.options().vocabulary);
        ValidationSet validation(set, validation_sequences(set, {}, sequences), ranks, rank, batches);
        EXPECT_EQ(validation.sequences(), count);
        if (microbatches < 0) microbatches = validation.microbatches();
        EXPECT_EQ(validation.microbatches(), microbatches);
        for (std::int64_t m = 0; m < microbatches; ++m) {
          const HostBatch& batch = validation.microbatch(m);
          labels += batch.label_count;
          tokens += batch.token_count;
          for (std::int64_t s = 0; s < b; ++s) {
            const std::int64_t sample = batch.samples[static_cast<std::size_t>(s * T)];
            if (sample < 0) {
              EXPECT_TRUE(std::all_of(batch.labels.begin() + s * T, batch.labels.begin() + (s + 1) * T,
                                      [](std::int32_t label) { return label == masked_label; }));
              continue;
            }
            ++seen[static_cast<std::size_t>(sample)];
            EXPECT_EQ(batch.tokens[static_cast<std::size_t>(s * T + 1)], expected_sample(set, sample)[1]);
          }
        }
      }
      EXPECT_EQ(labels, count * T);
      EXPECT_EQ(tokens, count * T);
      for (std::int64_t sample = 0; sample < 34; ++sample)
        EXPECT_EQ(seen[static_cast<std::size_t>(sample)], sample < count ? 1 : 0);
    }
}

TEST(ValidationSet, RefusesMoreSequencesThanThereAre) {
  const Directory dir;
  const TokenSet set = make_set(dir);
  expect_mentions(refusal([&] { validation_sequences(set, {}, 35); }),
                  {"train.validation_sequences: is 35, but data.validation_files hold 34 samples"});
  expect_mentions(refusal([&] {
                    validation_sequences(set, {"web", {}, {}, 36}, 3);
                  }),
                  {"data.validation web: sequences = 36, but its files hold 34 samples"});
  expect_mentions(refusal([&] {
                    validation_sequences(set, {"web", {}, {}}, 35);
                  }),
                  {"train.validation_sequences: is 35", "data.validation web hold 34", "`sequences` of the set"});
}

TEST(ValidationSet, HasItsOwnSequencesOrThoseOfAll) {
  const Directory dir;
  const TokenSet set = make_set(dir);
  EXPECT_EQ(validation_sequences(set, {"web", {}, {}}, 5), 5);
  EXPECT_EQ(validation_sequences(set, {"web", {}, {}, 7}, 5), 7);
  EXPECT_EQ(validation_sequences(set, {"web", {}, {}, 0}, 5), 34);
}

// Two sets take turns with the same batches; the bytes are those of labels that aren't masked.
TEST(ValidationSet, SharesBatchesAndCountsBytesOfLabels) {
  const Directory dir;
  const TokenSet set = make_set(dir);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(set.options().vocabulary));
  for (std::size_t id = 0; id < bytes.size(); ++id) bytes[id] = static_cast<std::int64_t>(id % 5);
  ValidationBatches batches(2, T, set.options().vocabulary, {}, bytes);
  ValidationSet first(set, 3, 1, 0, batches, "first"), second(set, 4, 1, 0, batches, "second");
  for (ValidationSet* each : {&first, &second, &first}) {
    std::int64_t counted = 0, expected = 0;
    for (std::int64_t m = 0; m < each->microbatches(); ++m) counted += each->microbatch(m).label_bytes;
    for (std::int64_t sample = 0; sample < each->sequences(); ++sample) {
      Sample read(T);
      set.read(sample, read);
      for (const std::int32_t label : read.labels)
        if (label != masked_label) expected += label % 5;
    }
    EXPECT_EQ(counted, expected) << each->name();
    EXPECT_GT(counted, 0);
  }
}

}  // namespace
}  // namespace forge
