#include "tokenizer/train_bpe.hpp"

#include <gtest/gtest.h>

#include "tokenizer/readers.hpp"

namespace forge {
namespace {

TEST(TrainBpe, MergesTheMostFrequentPairFirst) {
  BpeTrainer trainer("\\S+|\\s+");
  trainer.add("aab aab aab abab");
  const std::string text = trainer.train(260);
  EXPECT_EQ(text, [] {
    BpeTrainer again("\\S+|\\s+");
    again.add("aab aab aab abab");
    return again.train(260);
  }());
  const Tokenizer tokenizer(read_tokenizer_json(text, "made"));
  EXPECT_EQ(tokenizer.vocabulary(), 259);
  EXPECT_EQ(tokenizer.id_of(trained_document_end), 0);
  // ab: 5 times; then a + ab: 3 times; then ab + ab, once, is no merge.
  EXPECT_EQ(tokenizer.id_of("ab"), 257);
  EXPECT_EQ(tokenizer.id_of("aab"), 258);
  std::vector<std::int32_t> ids;
  Encoder(tokenizer).encode("aabab", ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{258, 257}));
  EXPECT_EQ(tokenizer.decode(ids), "aabab");
}

TEST(TrainBpe, StopsWhereNothingIsThereTwice) {
  BpeTrainer trainer("\\S+|\\s+");
  trainer.add("abc");
  EXPECT_EQ(Tokenizer(read_tokenizer_json(trainer.train(5000), "made")).vocabulary(), 257);
}

}  // namespace
}  // namespace forge
