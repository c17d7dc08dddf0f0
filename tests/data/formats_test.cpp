#include <sys/stat.h>

#include "core/random.hpp"
#include "data/token_set.hpp"
#include "files.hpp"
#include "text/token_writer.hpp"

namespace forge {
namespace {

using namespace test;

template <class T>
std::string word(T value) {
  return bytes_of(std::vector<T>{value});
}

// Documents of uneven lengths, one of them of a single token.
std::vector<std::vector<std::int32_t>> documents(std::int32_t vocabulary) {
  std::vector<std::vector<std::int32_t>> all;
  std::uint64_t state = 7;
  for (const std::size_t length : {5ul, 1ul, 300ul, 41ul, 9000ul, 17ul}) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < length; ++i)
      ids.push_back(static_cast<std::int32_t>((state = mix(state, i)) % static_cast<std::uint64_t>(vocabulary)));
    all.push_back(ids);
  }
  return all;
}

std::vector<std::int32_t> joined_ids(const std::vector<std::vector<std::int32_t>>& documents) {
  std::vector<std::int32_t> all;
  for (const auto& ids : documents) all.insert(all.end(), ids.begin(), ids.end());
  return all;
}

template <class T>
std::vector<T> as(const std::vector<std::int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

// The index as Megatron-Core's writer has it, put together from its description alone. `groups`: sequences of each
// document; `modes`: of a multimodal set.
struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> offsets, bounds;
  std::string tail;

  Index(const std::vector<std::vector<std::int32_t>>& sequences, std::int64_t bytes, std::size_t group = 1) {
    std::int64_t offset = 0;
    bounds.push_back(0);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      lengths.push_back(static_cast<std::int32_t>(sequences[i].size()));
      offsets.push_back(offset);
      offset += static_cast<std::int64_t>(sequences[i].size()) * bytes;
      if ((i + 1) % group == 0) bounds.push_back(static_cast<std::int64_t>(i + 1));
    }
  }
  std::string text() const {
    return magic + word(version) + word(type) + word(std::uint64_t{lengths.size()}) +
           word(std::uint64_t{bounds.size()}) + bytes_of(lengths) + bytes_of(offsets) + bytes_of(bounds) + tail;
  }
};

std::vector<std::int32_t> all_tokens(const TokenFile& file, std::int64_t vocabulary) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(file.tokens()));
  file.read(0, out, vocabulary);
  return out;
}

std::vector<std::int64_t> starts_of(const TokenFile& file) {
  std::vector<std::int64_t> starts(static_cast<std::size_t>(file.documents()->documents()) + 1);
  file.documents()->starts(0, starts);
  for (std::size_t d = 0; d < starts.size(); ++d)
    EXPECT_EQ(file.documents()->start(static_cast<std::int64_t>(d)), starts[d]);
  return starts;
}

TEST(Formats, MegatronGivesTheTokensAndDocumentsOfItsIndex) {
  const Directory dir;
  const auto docs = documents(60000);
  const auto ids = joined_ids(docs);
  write_tokens(dir / "a.bin", as<std::uint16_t>(ids));
  write_text(dir / "a.idx", Index(docs, 2).text());
  for (const char* name : {"a.bin", "a.idx", "a"}) {
    const TokenFile file = TokenFile::open(dir / name, TokenType::none);
    EXPECT_EQ(file.format(), TokenFormat::megatron);
    EXPECT_EQ(file.type(), DType::u16);
    EXPECT_EQ(all_tokens(file, 60000), ids);
    EXPECT_EQ(starts_of(file), (std::vector<std::int64_t>{0, 5, 6, 306, 347, 9347, 9364}));
    for (const auto& [token, document] : {std::pair{0, 0}, {4, 0}, {5, 1}, {6, 2}, {305, 2}, {306, 3}, {9363, 5}})
      EXPECT_EQ(file.documents()->document_of(token), document) << token;
  }
  // Documents of two sequences; int32, int64 and bytes; the modes of a multimodal set.
  Index pairs(docs, 4, 2);
  pairs.type = 4;
  pairs.tail = std::string(docs.size(), '\0');
  write_tokens(dir / "b.bin", ids);
  write_text(dir / "b.idx", pairs.text());
  const TokenFile file = TokenFile::open(dir / "b.bin", TokenType::none);
  EXPECT_EQ(all_tokens(file, 60000), ids);
  EXPECT_EQ(starts_of(file), (std::vector<std::int64_t>{0, 6, 347, 9364}));
  Index wide(docs, 8);
  wide.type = 5;
  write_tokens(dir / "c.bin", as<std::int64_t>(ids));
  write_text(dir / "c.idx", wide.text());
  EXPECT_EQ(all_tokens(TokenFile::open(dir / "c.bin", TokenType::none), 60000), ids);
  const auto small = documents(200);
  Index bytes(small, 1);
  bytes.type = 1;
  write_tokens(dir / "d.bin", as<std::uint8_t>(joined_ids(small)));
  write_text(dir / "d.idx", bytes.text());
  EXPECT_EQ(all_tokens(TokenFile::open(dir / "d.bin", TokenType::none), 200), joined_ids(small));
}

TEST(Formats, AMegatronIndexThatIsOutOfOrderIsRefused) {
  const Directory dir;
  const auto docs = documents(60000);
  write_tokens(dir / "a.bin", as<std::uint16_t>(joined_ids(docs)));
  const auto refuses = [&](auto change, const std::vector<std::string>& words) {
    Index index(docs, 2);
    change(index);
    write_text(dir / "a.idx", index.text());
    expect_mentions(refusal([&] { TokenFile::open(dir / "a.idx", TokenType::none); }), words);
  };
  refuses([](Index& i) { i.magic[0] = 'X'; }, {"a.idx", "byte offset 0", "MMIDIDX"});
  refuses([](Index& i) { i.version = 2; }, {"byte offset 9", "version 2", "legal: 1"});
  refuses([](Index& i) { i.type = 7; }, {"byte offset 17", "type code 7", "uint16"});
  refuses([](Index& i) { i.type = 4; }, {"sequence 1", "legal: 20"});
  refuses([](Index& i) { i.lengths[2] = -1; }, {"byte offset 42", "sequence 2 has -1"});
  refuses([](Index& i) { i.lengths[2] += 1; }, {"sequence 3", "behind the one before"});
  refuses([](Index& i) { i.lengths.back() += 1; }, {"18730 bytes", "a.bin has 18728"});
  refuses([](Index& i) { std::swap(i.offsets[1], i.offsets[2]); }, {"sequence 1"});
  refuses([](Index& i) { i.bounds[0] = 1; }, {"bound 0", "legal: 0"});
  refuses([](Index& i) { i.bounds[3] = 1; }, {"bound 3", "legal: 2 to 6"});
  refuses([](Index& i) { i.bounds.back() = 7; }, {"bound 6"});
  refuses([](Index& i) { i.bounds.pop_back(); }, {"ends with sequence 5 of 6"});
  refuses([](Index& i) { i.bounds.clear(); }, {"byte offset 26"});
  refuses([](Index& i) { i.tail = "x"; }, {"promises 6 sequences"});
  write_text(dir / "a.idx", Index(docs, 2).text().substr(0, 30));
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.idx", TokenType::none); }), {"within the header"});
  write_text(dir / "a.idx", Index(docs, 2).text().replace(18, 8, 8, '\xff'));
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.bin", TokenType::none); }), {"doesn't hold"});
  write_text(dir / "a.idx", Index(docs, 2).text());
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.bin", TokenType::uint32); }), {"uint16", "data.dtype"});
  std::filesystem::rename(dir / "a.idx", dir / "b.bin");
  expect_mentions(refusal([&] { TokenFile::open(dir / "b.bin", TokenType::uint16); }), {"Megatron index", ".idx"});
}

TEST(Formats, LlmCIsKnownByItsHeader) {
  const Directory dir;
  const auto ids = joined_ids(documents(60000));
  std::vector<std::int32_t> head(256, 0);
  head[0] = 20240520, head[1] = 1, head[2] = static_cast<std::int32_t>(ids.size());
  write_text(dir / "a.bin", bytes_of(head) + bytes_of(as<std::uint16_t>(ids)));
  const TokenFile file = TokenFile::open(dir / "a.bin", TokenType::none);
  EXPECT_EQ(file.format(), TokenFormat::llm_c);
  EXPECT_EQ(all_tokens(file, 60000), ids);
  EXPECT_EQ(file.documents(), nullptr);
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.bin", TokenType::uint32); }), {"uint16", "data.dtype"});
  head[0] = 20240801, head[1] = 7;
  write_text(dir / "b.bin", bytes_of(head) + bytes_of(as<std::uint32_t>(ids)));
  EXPECT_EQ(all_tokens(TokenFile::open(dir / "b.bin", TokenType::none), 60000), ids);
  head[1] = 1;
  write_text(dir / "b.bin", bytes_of(head) + bytes_of(as<std::uint32_t>(ids)));
  expect_mentions(refusal([&] { TokenFile::open(dir / "b.bin", TokenType::none); }), {"byte offset 4", "legal", "7"});
  head[0] = 20240522;
  write_text(dir / "b.bin", bytes_of(head) + bytes_of(as<std::uint32_t>(ids)));
  expect_mentions(refusal([&] { TokenFile::open(dir / "b.bin", TokenType::uint16); }), {"evaluation set of llm.c"});
  head[0] = 20240801;
  head[1] = 7, head[2] = -1;
  write_text(dir / "b.bin", bytes_of(head) + bytes_of(as<std::uint32_t>(ids)));
  expect_mentions(refusal([&] { TokenFile::open(dir / "b.bin", TokenType::none); }), {"promises -1"});
  write_text(dir / "b.bin", bytes_of(head).substr(0, 1000));
  expect_mentions(refusal([&] { TokenFile::open(dir / "b.bin", TokenType::none); }), {"header of 1024 bytes"});
}

TEST(Formats, DsTakesItsTypeFromTheMetadataAndItsDocumentsFromTheIndex) {
  const Directory dir;
  const auto docs = documents(60000);
  const auto ids = joined_ids(docs);
  write_tokens(dir / "a.ds", as<std::uint32_t>(ids));
  EXPECT_EQ(all_tokens(TokenFile::open(dir / "a.ds", TokenType::uint32), 60000), ids);
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.ds", TokenType::none); }), {"data.dtype"});
  write_text(dir / "a.ds.metadata", "some/tokenizer|4\n9364\n9.4 thousand");
  std::vector<std::uint64_t> ends;
  for (const auto& d : docs) ends.push_back((ends.empty() ? 0 : ends.back()) + d.size());
  write_tokens(dir / "a.ds.index", ends);
  const TokenFile file = TokenFile::open(dir / "a.ds", TokenType::none);
  EXPECT_EQ(file.format(), TokenFormat::ds);
  EXPECT_EQ(all_tokens(file, 60000), ids);
  EXPECT_EQ(starts_of(file), (std::vector<std::int64_t>{0, 5, 6, 306, 347, 9347, 9364}));
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.ds", TokenType::uint16); }), {"uint32", "data.dtype"});
  std::swap(ends[1], ends[2]);
  write_tokens(dir / "a.ds.index", ends);
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.ds", TokenType::none); }), {"a.ds.index", "document 2"});
  std::swap(ends[1], ends[2]);
  ends.back() -= 1;
  write_tokens(dir / "a.ds.index", ends);
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.ds", TokenType::none); }), {"9363 of 9364"});
  ends.back() += 1;
  write_tokens(dir / "a.ds.index", ends);
  write_text(dir / "a.ds.metadata", "some/tokenizer\n9364\n9.4 kT");  // an older version's, which has no size
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.ds", TokenType::none); }), {"data.dtype"});
  EXPECT_EQ(all_tokens(TokenFile::open(dir / "a.ds", TokenType::uint32), 60000), ids);
  write_text(dir / "a.ds.metadata", "some/tokenizer|3\n");
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.ds", TokenType::none); }), {"metadata", "NAME|2"});
}

// Every format gives the samples of the raw file, written by forge itself.
TEST(Formats, WhatIsWrittenReadsBack) {
  for (const std::int32_t vocabulary : {200, 65536, 65537, 200000}) {
    const Directory dir;
    const auto docs = documents(vocabulary);
    const auto ids = joined_ids(docs);
    const TokenType raw = vocabulary <= 65536 ? TokenType::uint16 : TokenType::uint32;
    for (const auto& [name, format] : {std::pair{"r.bin", TokenFormat::raw},
                                       {"n.npy", TokenFormat::npy},
                                       {"m.bin", TokenFormat::megatron},
                                       {"l.bin", TokenFormat::llm_c},
                                       {"d.ds", TokenFormat::ds}}) {
      const auto writer = TokenWriter::open(dir / name, format, vocabulary);
      for (const auto& d : docs) {
        const std::span<const std::int32_t> all(d);
        writer->append(all.first(d.size() / 3));
        writer->append(all.subspan(d.size() / 3));
        writer->end_document();
        writer->end_document();  // an empty one is none
      }
      EXPECT_FALSE(std::filesystem::exists(dir / name));
      writer->finish();
      const TokenFile file = TokenFile::open(dir / name, format == TokenFormat::raw ? raw : TokenType::none);
      EXPECT_EQ(file.format(), format);
      EXPECT_EQ(all_tokens(file, vocabulary), ids);
      if (file.documents()) {
        EXPECT_EQ(starts_of(file).size(), docs.size() + 1);
      }
      EXPECT_EQ(file.documents() != nullptr, format == TokenFormat::megatron || format == TokenFormat::ds);
    }
    for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
      EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
  }
}

TEST(Formats, AWriterLeavesNothingHalfWritten) {
  const Directory dir;
  write_text(dir / "m.bin", "old");
  {
    const auto writer = TokenWriter::open(dir / "m.bin", TokenFormat::megatron, 100);
    writer->append(std::vector<std::int32_t>{1, 2});
    expect_mentions(refusal([&] { writer->append(std::vector<std::int32_t>{100}); }), {"token 2 is 100"});
  }
  EXPECT_EQ(read_text(dir / "m.bin"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  expect_mentions(refusal([&] { TokenWriter::open(dir / "x.bin", TokenFormat::raw, 100)->finish(); }), {"no token"});
  expect_mentions(refusal([&] { TokenWriter::open(dir / "x.bin", TokenFormat::npy, 100); }), {".npy"});
  expect_mentions(refusal([&] { TokenWriter::open(dir / "x.npy", TokenFormat::raw, 100); }), {".npy"});
  expect_mentions(refusal([&] { TokenWriter::open(dir / "x", TokenFormat::megatron, 100); }), {".bin"});
}

TEST(Formats, DocumentsOfTheIndexAreMasked) {
  const Directory dir;
  const auto docs = documents(60000);
  const auto ids = joined_ids(docs);
  write_tokens(dir / "a.bin", as<std::uint16_t>(ids));
  write_text(dir / "a.idx", Index(docs, 2).text());
  const std::int64_t T = 64;
  TokenSetOptions options{{dir / "a.bin"}, TokenType::none, T, 60000, -1, DocumentEnds::index};
  const TokenSet set(options);
  const std::vector<std::int64_t> starts{0, 5, 6, 306, 347, 9347, 9364};
  Sample sample(T);
  for (std::int64_t i = 0; i < set.samples(); ++i) {
    set.read(i, sample);
    const auto document = [&](std::int64_t token) {
      return std::upper_bound(starts.begin(), starts.end(), token) - starts.begin();
    };
    for (std::int64_t t = 0; t < T; ++t) {
      const auto u = static_cast<std::size_t>(t);
      const std::int64_t at = i * T + t;
      ASSERT_EQ(sample.tokens[u], ids[static_cast<std::size_t>(at)]);
      const bool ends = document(at) != document(at + 1);
      ASSERT_EQ(sample.labels[u], ends ? masked_label : ids[static_cast<std::size_t>(at + 1)]) << at;
      ASSERT_EQ(sample.documents[u], document(at) - document(i * T)) << at;
      ASSERT_EQ(sample.positions[u], at - std::max(starts[static_cast<std::size_t>(document(at) - 1)], i * T)) << at;
    }
  }
  write_tokens(dir / "r.bin", as<std::uint16_t>(ids));
  options.files = {dir / "r.bin"};
  options.dtype = TokenType::uint16;
  expect_mentions(refusal([&] { TokenSet set(options); }), {"r.bin", "raw file without an index"});
}

TEST(Formats, AMaskTakesLabelsAway) {
  const Directory dir;
  const auto ids = joined_ids(documents(60000));
  write_tokens(dir / "a.bin", as<std::uint16_t>(ids));
  std::vector<std::uint8_t> mask;
  for (std::size_t i = 0; i < ids.size(); ++i) mask.push_back(mix(3, i) % 3 == 0);
  const std::int64_t T = 64;
  TokenSetOptions options{{dir / "a.bin"}, TokenType::uint16, T, 60000};
  options.mask_files = {dir / "a.npy"};
  for (const char* type : {"|u1", "|b1"}) {
    write_text(dir / "a.npy", npy(mask, type));
    const TokenSet set(options);
    Sample sample(T);
    for (std::int64_t i = 0; i < set.samples(); ++i) {
      set.read(i, sample);
      for (std::int64_t t = 0; t < T; ++t) {
        const auto next = static_cast<std::size_t>(i * T + t + 1);
        ASSERT_EQ(sample.labels[static_cast<std::size_t>(t)], mask[next] ? ids[next] : masked_label);
      }
    }
  }
  write_text(dir / "a.npy", npy(mask, "<u2"));
  expect_mentions(refusal([&] { TokenSet set(options); }), {"a.npy", "|u1"});
  mask.pop_back();
  write_text(dir / "a.npy", npy(mask, "|u1"));
  expect_mentions(refusal([&] { TokenSet set(options); }), {"a.npy", "9363", "9364"});
  mask.push_back(1);
  mask[20] = 2;
  write_text(dir / "a.npy", npy(mask, "|u1"));
  const TokenSet set(options);
  Sample sample(T);
  expect_mentions(refusal([&] { set.read(0, sample); }), {"a.npy", "element 20", "is 2", "legal in a mask"});
}

}  // namespace
}  // namespace forge
