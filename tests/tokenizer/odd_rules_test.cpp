#include <gtest/gtest.h>

#include "../data/files.hpp"
#include "tokenizer/parallel_encoder.hpp"
#include "tokenizer/readers.hpp"
#include "tokenizer/unicode.hpp"

// Rules of tokenizer.json where parts meet: added tokens and the white space of others, characters that are left out,
// normalizers that drop a text's start. What is expected is what the wheel tokenizers 0.23.3 gives
// (tests/tokenizer/random_wheels.py draws such files).

namespace forge {
namespace {

using namespace test;
using Ids = std::vector<std::int32_t>;

Tokenizer from(const std::string& rest, const std::string& model) {
  return Tokenizer(read_tokenizer_json("{" + rest + R"("model": )" + model + "}", "f.json"));
}

Ids ids_of(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  Encoder(tokenizer).encode(text, ids);
  return ids;
}

Ids times(int count, const Ids& part) {
  Ids all;
  for (int i = 0; i < count; ++i) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string times(int count, const std::string& part) {
  std::string all;
  for (int i = 0; i < count; ++i) all += part;
  return all;
}

// a 0, b 1, ab 2, U+2581 3, U+2581a 4, < 5
const std::string letters =
    R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "▁": 3, "▁a": 4, "<": 5}, "merges": ["a b", "▁ a"]})";

TEST(OddRules, CharactersThatAreLeftOutLetTheirNeighboursMerge) {
  const Tokenizer tokenizer = from("", letters);
  EXPECT_EQ(ids_of(tokenizer, "a b"), Ids({2}));
  EXPECT_EQ(ids_of(tokenizer, times(100, "a b")), times(100, Ids({2})));
  EXPECT_EQ(ids_of(tokenizer, times(100, "a é b")), times(100, Ids({2})));
  Ids dealt;
  ParallelEncoder(tokenizer, 3).encode(times(100, "a b"), dealt, 16);
  EXPECT_EQ(dealt, times(100, Ids({2})));
}

TEST(OddRules, PartsOfAWordAreNoTokensByThemselves) {
  const std::string model =
      R"({"type": "BPE", "ignore_merges": true, "vocab": {"a": 0, "b": 1, "abababababababab": 2}, "merges": []})";
  const Tokenizer tokenizer = from("", model);
  EXPECT_EQ(ids_of(tokenizer, "abababababababab"), Ids({2}));
  Ids dealt;
  ParallelEncoder(tokenizer, 2).encode(times(64, "ab"), dealt, 16);
  EXPECT_EQ(dealt, times(64, Ids({0, 1})));
}

TEST(OddRules, WhiteSpaceOfOneTokenIsNoOther) {
  const std::string tokens = R"("added_tokens": [
    {"id": 6, "content": "<x>", "lstrip": false, "rstrip": true, "normalized": false, "single_word": false, "special": true},
    {"id": 7, "content": " ", "lstrip": true, "rstrip": false, "normalized": false, "single_word": false, "special": false}],)";
  const Tokenizer tokenizer = from(tokens, letters);
  EXPECT_EQ(ids_of(tokenizer, "a<x> b"), Ids({0, 6, 1}));
  EXPECT_EQ(ids_of(tokenizer, "a<x>b b"), Ids({0, 6, 1, 7, 1}));
  EXPECT_EQ(ids_of(tokenizer, "a<x>  "), Ids({0, 6}));
}

TEST(OddRules, ATextWhoseStartIsDroppedHasNoFirstPiece) {
  const auto with = [](const std::string& normalizer) {
    return from(R"("normalizer": )" + normalizer +
                    R"(, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},)",
                letters);
  };
  const Tokenizer strip = with(R"({"type": "Strip", "strip_left": true, "strip_right": true})");
  EXPECT_EQ(ids_of(strip, "a"), Ids({4}));
  EXPECT_EQ(ids_of(strip, "\na"), Ids({0}));
  const Tokenizer nmt = with(R"({"type": "Nmt"})");
  EXPECT_EQ(ids_of(nmt,
                   "\x0B"
                   "a"),
            Ids({0}));
  const Tokenizer replace = with(R"({"type": "Replace", "pattern": {"String": "xy"}, "content": "a"})");
  EXPECT_EQ(ids_of(replace, "xy"), Ids({0}));
  EXPECT_EQ(ids_of(replace, "bxy"), Ids({3, 1, 0}));
  const Tokenizer one = with(R"({"type": "Replace", "pattern": {"Regex": "[xy]"}, "content": "a"})");
  EXPECT_EQ(ids_of(one, "xb"), Ids({3, 2}));
}

TEST(OddRules, ANormalizedTokenStandsForWhatItIsFoundAs) {
  const Tokenizer tokenizer =
      from(R"("normalizer": {"type": "Lowercase"}, "decoder": {"type": "Fuse"}, "added_tokens": [
    {"id": 6, "content": "THE", "normalized": true, "special": false}, {"id": 7, "content": "End", "normalized": true, "special": true},
    {"id": 8, "content": "STOP", "normalized": false, "special": true}],)",
           letters);
  EXPECT_EQ(ids_of(tokenizer, "aThebENDSTOP"), Ids({0, 6, 1, 7, 8}));
  // What is special is known by its text.
  EXPECT_EQ(tokenizer.decode(Ids({0, 6, 1, 7, 8})), "athebend");
  EXPECT_EQ(tokenizer.id_of("STOP"), 8);
  expect_mentions(
      refusal([] {
        from(R"("normalizer": {"type": "Strip"}, "added_tokens": [{"id": 6, "content": " ", "normalized": true}],)",
             letters);
      }),
      {"f.json: added_tokens", "' '", "normalized = false"});
}

TEST(OddRules, AStreamStaysValidWhereBytesTurnOutToBeNoCharacter) {
  const std::string model =
      R"({"type": "BPE", "byte_fallback": true, "vocab": {"<0xC3>": 0, "<0xA9>": 1, "<0xFF>": 2, "a": 3}, "merges": []})";
  const Tokenizer tokenizer = from(R"("decoder": {"type": "ByteFallback"},)", model);
  TextStream stream(tokenizer);
  std::string text;
  for (const std::int32_t id : {3, 0, 1, 2, 3}) {
    text += stream.add(id);
    EXPECT_TRUE(is_valid_utf8(text));
  }
  text += stream.finish();
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_TRUE(text.starts_with("aé") && text.ends_with("a"));
}

TEST(OddRules, AFewReplacementsDontTakeAllMemory) {
  std::string steps;
  for (int i = 0; i < 60; ++i)
    steps += (i > 0 ? ", " : "") + std::string(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})");
  const Tokenizer tokenizer = from(R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]},", letters);
  expect_mentions(refusal([&] { ids_of(tokenizer, "a"); }), {"replacements", "legal: at most 1 MiB"});
  Ids dealt;
  expect_mentions(refusal([&] { ParallelEncoder(tokenizer, 2).encode("a", dealt); }), {"replacements"});
}

TEST(OddRules, OfTwoTokensWithOneTextTheFirstHolds) {
  const Tokenizer tokenizer = from(R"("normalizer": {"type": "Lowercase"}, "added_tokens": [
    {"id": 6, "content": "X", "normalized": true, "special": false}, {"id": 7, "content": "x", "normalized": true, "special": true}],)",
                                   letters);
  EXPECT_EQ(ids_of(tokenizer, "xX"), Ids({6, 6}));
}

// The wheel was asked for all characters.
TEST(OddRules, ClassesInBracketsAreOnigurumas) {
  const auto cut = [](const std::string& regex) {
    return from(
        R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": ")" + regex + R"("}, "behavior": "Removed"},)",
        R"({"type": "BPE", "vocab": {"a": 0, "¢": 1, "²": 2, "ͣ": 3, "=": 4, "ꟲ": 5}, "merges": []})");
  };
  const std::string text = "a¢²ͣ=ꟲ";
  EXPECT_EQ(ids_of(cut("[[:punct:]]+"), text), Ids({0, 2, 3, 5}));
  EXPECT_EQ(ids_of(cut("\\\\p{Punct}+"), text), Ids({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ids_of(cut("[[:word:]]+"), text), Ids({1, 2, 4}));
  EXPECT_EQ(ids_of(cut("\\\\w+"), text), Ids({1, 4}));
  EXPECT_EQ(ids_of(cut("[[:alpha:]]+"), text), Ids({1, 2, 4}));
  EXPECT_EQ(ids_of(cut("[[:lower:]]+"), text), Ids({1, 2, 3, 4}));
}

TEST(OddRules, SentencePieceDecodesAsItsLibrary) {
  const auto decoded = [](bool strips, bool strips_all, std::vector<std::string> parts) {
    RegexScratch scratch;
    make_sentencepiece_decoder(" ⁇ ", strips, strips_all)(parts, scratch);
    return parts.at(0);
  };
  EXPECT_EQ(decoded(true, true, {"▁", "▁", "▁▁a", "▁b"}), " a b");
  EXPECT_EQ(decoded(true, false, {"▁", "▁", "a", "▁b"}), " a b");
  EXPECT_EQ(decoded(false, false, {"▁a", "▁b"}), " a b");
  EXPECT_EQ(decoded(true, true, {" ⁇ ", "▁a"}), " ⁇  a");
  EXPECT_EQ(decoded(true, true, {"<0xC3>", "<0xA9>", "<0xFF>", "a", "<0xE2>", "<0x96>"}), "é\uFFFDa\uFFFD\uFFFD");
}

// A set of sets is one character, however many of them have it: found by fuzzing, as a pattern that took 2^n steps.
TEST(OddRules, ARepeatedSetTriesEachCharacterOnce) {
  const Tokenizer tokenizer = from(
      R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a-z[^0-9]]+X"}, "behavior": "Removed"},)", letters);
  EXPECT_EQ(ids_of(tokenizer, times(40, "ab")), times(40, Ids({2})));
  EXPECT_EQ(ids_of(tokenizer, times(40, "ab") + "X<"), Ids({5}));
}

TEST(OddRules, GraphemeClustersAreRefused) {
  expect_mentions(refusal([] {
                    from(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\X"}, "behavior": "Isolated"},)",
                         letters);
                  }),
                  {"pre_tokenizer", "\\X"});
}

}  // namespace
}  // namespace forge
