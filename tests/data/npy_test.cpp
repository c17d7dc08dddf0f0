#include <span>

#include "core/random.hpp"
#include "data/npy_header.hpp"
#include "data/token_file.hpp"
#include "files.hpp"

namespace forge {
namespace {

using namespace test;

// An .npy file of version 1 with this header text and five 2-byte elements.
std::string with_header(const std::string& dict) {
  std::string bytes = "\x93NUMPY";
  bytes += std::string("\x01\x00", 2);
  bytes += static_cast<char>(dict.size() & 0xff);
  bytes += static_cast<char>(dict.size() >> 8);
  return bytes + dict + bytes_of(counting<std::uint16_t>(5));
}

std::string refuse_header(const Directory& dir, const std::string& dict) {
  write_text(dir / "x.npy", with_header(dict));
  return refusal([&] { TokenFile::open(dir / "x.npy", TokenType::none); });
}

template <class T>
void expect_reads(const Directory& dir, const std::string& type, DType dtype) {
  for (const int version : {1, 2, 3})
    for (const std::size_t n : {0ul, 1ul, 3ul, 17ul, 9001ul}) {
      write_text(dir / "x.npy", npy(counting<T>(n), type, version));
      const TokenFile file = TokenFile::open(dir / "x.npy", TokenType::none);
      EXPECT_EQ(file.type(), dtype);
      ASSERT_EQ(file.tokens(), static_cast<std::int64_t>(n));
      std::vector<std::int32_t> out(n);
      file.read(0, out, 9001);
      EXPECT_EQ(out, counting<std::int32_t>(n));
    }
}

TEST(Npy, ReadsVersionsAndTypes) {
  const Directory dir;
  expect_reads<std::uint16_t>(dir, "<u2", DType::u16);
  expect_reads<std::uint32_t>(dir, "<u4", DType::u32);
  expect_reads<std::int32_t>(dir, "<i4", DType::i32);
  expect_reads<std::int64_t>(dir, "<i8", DType::i64);
}

TEST(Npy, ADeclaredTypeMustBeTheFiles) {
  const Directory dir;
  write_text(dir / "x.npy", npy(counting<std::uint16_t>(5), "<u2"));
  EXPECT_EQ(TokenFile::open(dir / "x.npy", TokenType::uint16).tokens(), 5);
  expect_mentions(refusal([&] { TokenFile::open(dir / "x.npy", TokenType::uint32); }),
                  {"x.npy", "holds uint16", "data.dtype says uint32"});
}

TEST(Npy, NegativeIdsAreOutsideTheVocabulary) {
  const Directory dir;
  write_text(dir / "x.npy", npy(std::vector<std::int64_t>{1, -1, std::int64_t{1} << 40}, "<i8"));
  const TokenFile file = TokenFile::open(dir / "x.npy", TokenType::none);
  std::vector<std::int32_t> out(1);
  expect_mentions(refusal([&] { file.read(1, out, 10); }), {"is -1", "byte offset 136"});
  expect_mentions(refusal([&] { file.read(2, out, 10); }), {"is 1099511627776"});
}

TEST(Npy, AcceptsEveryOrderOfKeysAndEitherQuote) {
  const Directory dir;
  for (const char* dict : {"{'shape':(5,),'fortran_order':False,'descr':'<u2'}",
                           " { \"descr\" : \"<u2\" , 'shape' : ( 5 , ) , 'fortran_order' : False , } \n"}) {
    write_text(dir / "x.npy", with_header(dict));
    EXPECT_EQ(TokenFile::open(dir / "x.npy", TokenType::none).tokens(), 5);
  }
}

TEST(Npy, RefusesOtherArrays) {
  const Directory dir;
  const auto dict = [](const std::string& type, const std::string& order, const std::string& shape) {
    return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  };
  for (const char* type : {">u2", "<f4", "|u1", "<u8", "|O", "<i2"})
    expect_mentions(refuse_header(dir, dict(type, "False", "(5,)")), {"x.npy", type, "<u2, <u4, <i4 or <i8"});
  expect_mentions(refuse_header(dir, dict("<u2", "True", "(5,)")), {"fortran_order"});
  expect_mentions(refuse_header(dir, dict("<u2", "False", "()")), {"scalar"});
  expect_mentions(refuse_header(dir, dict("<u2", "False", "(5, 1)")), {"several axes"});
  expect_mentions(refuse_header(dir, dict("<u2", "False", "(5)")), {"(N,)"});
  expect_mentions(refuse_header(dir, dict("<u2", "False", "(-5,)")), {"expected a number"});
  expect_mentions(refuse_header(dir, dict("<u2", "False", "(99999999999999999999,)")), {"too large"});
  expect_mentions(refuse_header(dir, dict("<u2", "False", "(9223372036854775807,)")), {"9223372036854775807 elements"});
  expect_mentions(refuse_header(dir, dict("<u2", "False", "(4,)")), {"promises 4", "ends at byte offset"});
  expect_mentions(refuse_header(dir, dict("<u2", "False", "(6,)")), {"promises 6"});
  expect_mentions(refuse_header(dir, "{'descr': '<u2', 'descr': '<u2'}"), {"stands twice"});
  expect_mentions(refuse_header(dir, "{'descr': '<u2', 'shape': (5,)}"), {"missing"});
  expect_mentions(refuse_header(dir, dict("<u2", "False", "(5,)") + "x"), {"closing brace"});
  expect_mentions(refuse_header(dir, ""), {"expected '{'"});
  expect_mentions(refuse_header(dir, "{'descr': '<u2"), {"doesn't end"});
}

TEST(Npy, RefusesBrokenPreambles) {
  const Directory dir;
  const std::string good = npy(counting<std::uint16_t>(5), "<u2");
  const auto refuse = [&](const std::string& bytes) {
    write_text(dir / "x.npy", bytes);
    return refusal([&] { TokenFile::open(dir / "x.npy", TokenType::none); });
  };
  for (std::size_t size = 0; size < good.size(); ++size)  // every truncation
    expect_mentions(refuse(good.substr(0, size)), {"x.npy", size < 6 ? "no .npy header" : "byte"});
  std::string version = good, magic = good, length = good;
  version[6] = 4;
  magic[1] = 'M';
  length[9] = '\x7f';
  expect_mentions(refuse(version), {"version 4.0"});
  expect_mentions(refuse(magic), {"no .npy header"});
  expect_mentions(refuse(length), {"beyond the end"});
  std::string huge = npy(counting<std::uint16_t>(5), "<u2", 2);
  huge[11] = '\x7f';
  expect_mentions(refuse(huge), {"too large"});
}

// Random damage either leaves a readable file or is refused with BadInput; under the sanitizers nothing else may
// happen.
TEST(Npy, MutatedFilesNeverCrash) {
  const Directory dir;
  const std::string path = dir / "x.npy";
  int refused = 0;
  for (std::uint64_t trial = 0; trial < 10000; ++trial) {
    std::string bytes = npy(counting<std::uint16_t>(7), "<u2", static_cast<int>(trial % 3) + 1);
    const auto draw = philox(random_key(1, Purpose::sampling), trial, 0);
    const std::size_t changes = 1 + draw[0] % 4;
    for (std::size_t change = 0; change < changes; ++change) {
      const auto words = philox(random_key(2, Purpose::sampling), trial, change);
      const std::size_t at = words[0] % bytes.size();
      const char letters[] = {"'\"{}(),: 0123456789<u2TrueFalsedescrshape\0\xff\x93"};
      switch (words[1] % 4) {
        case 0:
          bytes[at] = static_cast<char>(words[2]);
          break;
        case 1:
          bytes[at] = letters[words[2] % sizeof letters];
          break;
        case 2:
          bytes.erase(at, 1 + words[2] % 8);
          break;
        default:
          bytes.insert(at, bytes.substr(words[2] % bytes.size(), words[3] % 16));
          break;
      }
      if (bytes.empty()) bytes = "x";
    }
    const std::vector<char> exact(bytes.begin(), bytes.end());  // a read behind its end is seen
    try {
      const NpyHeader header = parse_npy_header(std::as_bytes(std::span(exact)), "x.npy");
      ASSERT_LE(header.data_offset, static_cast<std::int64_t>(bytes.size()));
      ASSERT_GE(header.count, 0);
    } catch (const BadInput&) {
      ++refused;
    }
    if (trial % 20 != 0) continue;
    write_text(path, bytes);
    try {
      const TokenFile file = TokenFile::open(path, TokenType::none);
      std::vector<std::int32_t> out(static_cast<std::size_t>(file.tokens()));
      ASSERT_LE(out.size(), bytes.size());
      file.read(0, out, 7);
    } catch (const BadInput&) {
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 10000);
}

}  // namespace
}  // namespace forge
