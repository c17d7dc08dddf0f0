#include "data/packing.hpp"

#include <chrono>
#include <cmath>
#include <random>
#include <set>
#include <thread>

#include "core/random.hpp"
#include "data/token_set.hpp"
#include "files.hpp"

namespace forge {
namespace {

using namespace test;

// The rule itself, without a search tree: for each piece look at every sample.
std::vector<std::vector<std::uint32_t>> plain_best_fit(const std::vector<DocumentPiece>& pieces, std::int64_t T) {
  std::vector<std::uint32_t> order(pieces.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return pieces[a].length > pieces[b].length; });
  std::vector<std::vector<std::uint32_t>> samples;
  std::vector<std::int64_t> room;
  for (const std::uint32_t i : order) {
    std::size_t best = samples.size();
    for (std::size_t s = 0; s < samples.size(); ++s)
      if (room[s] >= pieces[i].length && (best == samples.size() || room[s] < room[best])) best = s;
    if (best == samples.size()) samples.emplace_back(), room.push_back(T);
    samples[best].push_back(i);
    room[best] -= pieces[i].length;
  }
  for (auto& sample : samples) std::sort(sample.begin(), sample.end());
  return samples;
}

TEST(Packing, FollowsTheRule) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t T = 1 + static_cast<std::int64_t>(random() % 60);
    std::vector<DocumentPiece> pieces;
    for (std::size_t i = 0, n = random() % 80; i < n; ++i)
      pieces.push_back({0, 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(T)), false});
    EXPECT_EQ(best_fit(pieces, T), plain_best_fit(pieces, T));
  }
}

void append_pieces(std::int64_t begin, std::int64_t end, std::int64_t T, std::vector<DocumentPiece>& pieces) {
  for_each_piece(begin, end, T, [&](const DocumentPiece& piece) { pieces.push_back(piece); });
}

TEST(Packing, ALongDocumentIsCutAtT) {
  std::vector<DocumentPiece> pieces;
  append_pieces(100, 121, 10, pieces);  // 21 tokens: the last one is the label of the one before
  append_pieces(200, 201, 10, pieces);  // nothing to predict
  append_pieces(300, 310, 10, pieces);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_TRUE(pieces[0].first == 100 && pieces[0].length == 10 && pieces[0].continues);
  EXPECT_TRUE(pieces[1].first == 110 && pieces[1].length == 10 && pieces[1].continues);
  EXPECT_TRUE(pieces[2].first == 300 && pieces[2].length == 10 && !pieces[2].continues);
}

TEST(Packing, FillsMoreThan99PercentOfLogNormalDocuments) {
  std::mt19937_64 random(2);
  std::lognormal_distribution<double> length(6, 1);  // median 400 tokens
  for (const std::int64_t T : {1024, 2048, 4096}) {
    std::vector<DocumentPiece> pieces;
    std::int64_t tokens = 0;
    for (std::int64_t d = 0; d < packing_window; ++d) {
      const auto n = static_cast<std::int64_t>(std::ceil(length(random)));
      append_pieces(0, n, T, pieces);
    }
    for (const DocumentPiece& piece : pieces) tokens += piece.length;
    const auto room = static_cast<double>(best_fit(pieces, T).size()) * static_cast<double>(T);
    EXPECT_GT(static_cast<double>(tokens) / room, 0.99) << T;
    RecordProperty("fill_" + std::to_string(T), std::to_string(static_cast<double>(tokens) / room));
  }
}

constexpr std::int64_t T = 32, V = 1000, end_token = 999;

// Two files of documents; the last document of each has no end.
struct Documents {
  Directory dir;
  std::vector<std::vector<std::int32_t>> all;  // by file and number
  TokenSetOptions options;
  explicit Documents(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const char* name : {"a.bin", "b.bin"}) {
      std::vector<std::uint16_t> tokens;
      for (int d = 0; d < 400; ++d) {
        std::vector<std::int32_t> ids;
        for (std::size_t n = random() % (d % 10 == 0 ? 120 : 20); ids.size() < n;)
          ids.push_back(static_cast<std::int32_t>(random() % 999));
        if (d < 399) ids.push_back(end_token);
        tokens.insert(tokens.end(), ids.begin(), ids.end());
        all.push_back(ids);
      }
      write_tokens(dir / name, tokens);
    }
    options = {{dir / "a.bin", dir / "b.bin"}, TokenType::uint16, T, V, end_token};
    options.packing = Packing::best_fit;
    options.packing_directory = dir / "plans";
  }
  std::size_t plans() const {
    std::error_code ignored;
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(dir / "plans", ignored), {}));
  }
};

// Every (token, label) of every document stands in the samples once, in its order; nothing crosses documents.
TEST(Packing, SamplesHoldEachDocumentOnce) {
  const Documents documents(3);
  const TokenSet set(documents.options);
  std::multiset<std::vector<std::int32_t>> expected, found;
  for (const auto& ids : documents.all)
    for (std::size_t begin = 0; begin < ids.size(); begin += T) {
      const std::size_t n = std::min<std::size_t>(T, ids.size() - begin);
      if (n == 1 && begin + n == ids.size()) continue;
      std::vector<std::int32_t> piece(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                      ids.begin() + static_cast<std::ptrdiff_t>(begin + n));
      piece.push_back(begin + n < ids.size() ? ids[begin + n] : masked_label);
      expected.insert(piece);
    }
  Sample sample(T);
  std::int64_t padding = 0, filled = 0;
  for (std::int64_t i = 0; i < set.samples(); ++i) {
    set.read(i, sample);
    filled += sample.filled;
    for (std::size_t t = 0; t < T;) {
      std::vector<std::int32_t> piece;
      const std::int32_t document = sample.documents[t];
      const std::size_t begin = t;
      for (; t < T && sample.documents[t] == document; ++t) {
        ASSERT_EQ(sample.positions[t], static_cast<std::int32_t>(t - begin));
        piece.push_back(sample.tokens[t]);
      }
      if (std::all_of(sample.labels.begin() + static_cast<std::ptrdiff_t>(begin),
                      sample.labels.begin() + static_cast<std::ptrdiff_t>(t),
                      [](auto l) { return l == masked_label; })) {
        ASSERT_EQ(t, static_cast<std::size_t>(T));
        padding += static_cast<std::int64_t>(t - begin);
        break;
      }
      for (std::size_t j = begin; j + 1 < t; ++j) ASSERT_EQ(sample.labels[j], sample.tokens[j + 1]);
      piece.push_back(sample.labels[t - 1]);
      found.insert(piece);
    }
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(set.samples() * T - set.plan()->tokens(), padding);
  EXPECT_EQ(filled, set.plan()->tokens());
}

// The plan on the disk is the rule's, window by window.
TEST(Packing, ThePlanIsTheRulesOfEachWindow) {
  const Directory dir;
  std::mt19937_64 random(11);
  const std::int64_t short_T = 24;
  PackingPlanWriter writer(dir / "x.plan", 5, short_T);
  std::vector<std::vector<DocumentPiece>> windows(1);
  std::int64_t begin = 0;
  for (std::int64_t d = 0; d < 2 * packing_window + 100; ++d) {
    const auto length = static_cast<std::int64_t>(1 + random() % 60);
    if (d > 0 && d % packing_window == 0) windows.emplace_back();
    writer.add_document(begin, begin + length);
    append_pieces(begin, begin + length, short_T, windows.back());
    begin += length;
  }
  writer.finish();
  const PackingPlan plan = PackingPlan::open(dir / "x.plan", 5, short_T);
  std::int64_t sample = 0;
  for (const auto& window : windows)
    for (const auto& expected : best_fit(window, short_T)) {
      const PackingPlan::Range range = plan.range_of(sample++);
      std::vector<DocumentPiece> found(static_cast<std::size_t>(range.end - range.first));
      plan.read(range.first, found);
      ASSERT_EQ(found.size(), expected.size()) << sample;
      for (std::size_t i = 0; i < found.size(); ++i) {
        const DocumentPiece& piece = window[expected[i]];
        ASSERT_TRUE(found[i].first == piece.first && found[i].length == piece.length &&
                    found[i].continues == piece.continues)
            << sample;
      }
    }
  EXPECT_EQ(plan.samples(), sample);
}

TEST(Packing, ThePlanIsMadeOnceForItsInputs) {
  const Documents documents(4);
  TokenSetOptions options = documents.options;
  const TokenSet first(options);
  EXPECT_EQ(documents.plans(), 1u);
  const auto when = std::filesystem::last_write_time(first.plan()->path());
  const TokenSet second(options);
  EXPECT_EQ(std::filesystem::last_write_time(second.plan()->path()), when);
  options.sequence_tokens = 16;
  const TokenSet shorter(options);
  EXPECT_EQ(documents.plans(), 2u);
  // Other contents of the same size.
  std::string bytes = read_text(documents.dir / "a.bin");
  bytes[0] = static_cast<char>(bytes[0] ^ 1);
  write_text(documents.dir / "a.bin", bytes);
  const TokenSet changed(options);
  EXPECT_EQ(documents.plans(), 3u);
  // Whatever of it is looked at: what is written later has a plan of its own.
  std::filesystem::last_write_time(documents.dir / "a.bin", when + std::chrono::seconds(7));
  const TokenSet touched(options);
  EXPECT_EQ(documents.plans(), 4u);
  EXPECT_EQ(touched.samples(), changed.samples());
}

TEST(Packing, RanksThatPlanAtTheSameTimeAgree) {
  const Documents documents(5);
  std::vector<std::int64_t> samples(8, 0);
  std::vector<std::thread> ranks;
  for (std::size_t i = 0; i < samples.size(); ++i)
    ranks.emplace_back([&, i] { samples[i] = TokenSet(documents.options).samples(); });
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(documents.plans(), 1u);
  for (const std::int64_t n : samples) EXPECT_EQ(n, samples[0]);
}

TEST(Packing, ADamagedPlanIsRefusedAndNothingElseHappens) {
  const Documents documents(6);
  const std::string path = TokenSet(documents.options).plan()->path(), good = read_text(path);
  Sample sample(T);
  std::mt19937_64 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    const std::size_t at = random() % bad.size();
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    if (i % 10 == 0) bad.resize(at);
    write_text(path, bad);
    try {
      const TokenSet set(documents.options);
      for (std::int64_t s = 0; s < set.samples(); ++s) set.read(s, sample);
    } catch (const BadInput& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
}

TEST(Packing, AFileThatNoLongerFitsItsPlanIsRefused) {
  const Documents documents(8);
  const TokenSet set(documents.options);
  auto tokens = read_text(documents.dir / "b.bin");
  for (std::size_t i = 0; i + 1 < tokens.size(); i += 2)
    if (static_cast<unsigned char>(tokens[i]) == (end_token & 255) && tokens[i + 1] == (end_token >> 8)) tokens[i] = 0;
  write_text(documents.dir / "b.bin", tokens);
  Sample sample(T);
  expect_mentions(refusal([&] {
                    for (std::int64_t i = 0; i < set.samples(); ++i) set.read(i, sample);
                  }),
                  {".plan", "isn't a document's", "remove it"});
}

TEST(Packing, NeedsDocuments) {
  const Documents documents(9);
  TokenSetOptions options = documents.options;
  options.document_end_token = -1;
  expect_mentions(refusal([&] { TokenSet set(options); }), {"best_fit", "document_end_token"});
}

}  // namespace
}  // namespace forge
