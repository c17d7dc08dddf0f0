#include "data/step_rows.hpp"

#include "data/loader.hpp"
#include "files.hpp"

// A step's rows as a person sees them are those that training reads, on any number of ranks.

namespace forge {
namespace {

using namespace test;

constexpr std::int64_t T = 8, V = 997, END = 0;

// Documents of 1 to 13 tokens, each ended by token 0.
std::vector<std::uint16_t> documents(std::size_t count, std::uint16_t salt) {
  std::vector<std::uint16_t> tokens;
  for (std::size_t d = 0; d < count; ++d) {
    for (std::size_t i = 0; i < (d * 5 + salt) % 13; ++i)
      tokens.push_back(static_cast<std::uint16_t>(1 + (d * 31 + i * 7 + salt) % (V - 1)));
    tokens.push_back(END);
  }
  return tokens;
}

// The same with Megatron's index of its documents.
void write_indexed(const std::string& stem, const std::vector<std::uint16_t>& tokens) {
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> offsets, bounds{0};
  std::size_t begin = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] == END) {
      lengths.push_back(static_cast<std::int32_t>(i + 1 - begin));
      offsets.push_back(static_cast<std::int64_t>(2 * begin));
      begin = i + 1;
      bounds.push_back(static_cast<std::int64_t>(lengths.size()));
    }
  std::string index("MMIDIDX\0\0", 9);
  index += bytes_of(std::vector<std::uint64_t>{1}) + '\10';
  index += bytes_of(std::vector<std::uint64_t>{lengths.size(), bounds.size()});
  write_text(stem + ".idx", index + bytes_of(lengths) + bytes_of(offsets) + bytes_of(bounds));
  write_tokens(stem + ".bin", tokens);
}

// Every row of each step as its rank's loader has it.
void expect_rows_of_training(const SampleStream& stream, std::int64_t G, std::int64_t steps) {
  for (const std::int64_t ranks : {1, 2, 4})
    for (const std::int64_t b : {1, 2})
      for (std::int64_t d = 0; d < ranks; ++d) {
        const BatchShare share{G, b, ranks, d};
        Loader loader(stream, share, 1, steps);
        for (std::int64_t step = 1; step <= steps; ++step) {
          const HostBatch& batch = loader.next();
          std::int64_t at = 0;  // of the rank's rows
          for (std::int64_t row = 0; row < G; ++row) {
            const StepRow found = row_of_step(stream, share, step, row);
            if (found.data_rank != d) continue;
            EXPECT_EQ(found.microbatch, at / b);
            for (std::int64_t t = 0; t < T; ++t) {
              const auto i = static_cast<std::size_t>(at * T + t), in_row = static_cast<std::size_t>(t);
              ASSERT_EQ(found.sample.tokens[in_row], batch.tokens[i]) << "step " << step << ", row " << row;
              ASSERT_EQ(found.sample.labels[in_row], batch.labels[i]);
              ASSERT_EQ(batch.samples[i], t < found.sample.filled ? found.place : -1);
            }
            ++at;
          }
          EXPECT_EQ(at, batch.sequences);
        }
      }
}

// The tokens of each part stand where it says, and its document begins there: behind an end, or with the file.
void expect_places(const SampleStream& stream, std::int64_t G, bool numbered) {
  for (std::int64_t row = 0; row < G; ++row) {
    const StepRow found = row_of_step(stream, {G, 1, 1, 0}, 1, row);
    std::int64_t at = 0;
    for (const SamplePart& part : found.parts) {
      EXPECT_EQ(part.at, at);
      at += part.length;
      const std::string bytes = read_text(part.file);
      const auto* tokens = reinterpret_cast<const std::uint16_t*>(bytes.data());
      for (std::int64_t i = 0; i < part.length; ++i)
        ASSERT_EQ(found.sample.tokens[static_cast<std::size_t>(part.at + i)], tokens[part.first + i]);
      std::int64_t begin = part.first, number = 0;
      while (begin > 0 && tokens[begin - 1] != END) --begin;
      for (std::int64_t i = 0; i < begin; ++i) number += tokens[i] == END;
      EXPECT_EQ(part.document_first, begin);
      EXPECT_EQ(part.document, numbered ? number : -1);
    }
    EXPECT_EQ(at, found.sample.filled);
  }
}

TEST(StepRows, AreThoseOfTrainingOnAnyRanks) {
  const Directory dir;
  write_tokens(dir / "a.bin", documents(60, 3));
  write_tokens(dir / "b.bin", documents(40, 8));
  write_indexed(dir / "c", documents(50, 5));
  const TokenSet a({{dir / "a.bin", dir / "b.bin"}, TokenType::uint16, T, V, END});
  const TokenSet packed(
      {{dir / "b.bin"}, TokenType::uint16, T, V, END, DocumentEnds::token, {}, Packing::best_fit, dir.path().string()});
  const TokenSet indexed({{dir / "c.bin"}, TokenType::none, T, V, -1, DocumentEnds::index});
  const auto source = [](const char* name, const TokenSet& set) {
    return DataSource{name, &set, {SampleOrder::shuffled, 7, set.samples()}};
  };
  for (const TokenSet* set : {&a, &packed, &indexed}) {
    const SampleStream alone(source("", *set));
    expect_rows_of_training(alone, 8, 3);
    expect_places(alone, 8, set == &indexed);
  }
  SampleStream mixed({source("a", a), source("packed", packed)}, {{0, {3, 1}}, {16, {1, 3}}});
  expect_rows_of_training(mixed, 8, 4);
  EXPECT_EQ(row_of_step(mixed, {8, 1, 1, 0}, 1, 0).source, "a");
  mixed.cut({{8, {4, false}}});
  expect_rows_of_training(mixed, 8, 4);
}

// Without documents a sample is one part, of no document.
TEST(StepRows, OfNoDocuments) {
  const Directory dir;
  write_tokens(dir / "a.bin", documents(60, 3));
  const TokenSet set({{dir / "a.bin"}, TokenType::uint16, T, V});
  const StepRow row =
      row_of_step(SampleStream(DataSource{"", &set, {SampleOrder::sequential, 0, set.samples()}}), {4, 1, 2, 0}, 3, 2);
  ASSERT_EQ(row.parts.size(), 1u);
  EXPECT_EQ(row.parts[0].first, 10 * T);
  EXPECT_EQ(row.parts[0].length, T);
  EXPECT_EQ(row.parts[0].document_first, -1);
  EXPECT_EQ(row.parts[0].document, -1);
  EXPECT_EQ(row.place, 10);
  EXPECT_EQ(row.number, 10);
}

}  // namespace
}  // namespace forge
