#include "text/tokenize_text.hpp"

#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "../data/files.hpp"
#include "text/json_line.hpp"
#include "text/text_file.hpp"
#include "text/tokenize.hpp"

namespace forge {
namespace {

using namespace test;

const Tokenizer& tokenizer() {
  static const Tokenizer made = Tokenizer::open("tests/tokenizer/data/gpt2");
  return made;
}

std::vector<std::uint16_t> ids_at(const std::string& path) {
  const std::string bytes = read_text(path);
  std::vector<std::uint16_t> ids(bytes.size() / 2);
  std::memcpy(ids.data(), bytes.data(), 2 * ids.size());
  return ids;
}

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "{\"id\": " + std::to_string(i) + ", \"text\": \"line " + std::to_string(i) + " \\u00e9\\n\"}\n";
  return text;
}

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  // Two members.
  gzwrite(file, text.data(), static_cast<unsigned>(text.size() / 2));
  gzclose(file);
  file = gzopen(path.c_str(), "ab");
  gzwrite(file, text.data() + text.size() / 2, static_cast<unsigned>(text.size() - text.size() / 2));
  gzclose(file);
}

std::string gzip_of(const std::string& text) {
  const Directory dir;
  write_gzip(dir / "x", text);
  return read_text(dir / "x");
}

void write_zstd(const std::string& path, const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  write_text(path, out);
}

// What other programs read, with their documents, holds the ids of the raw file.
TEST(TokenizeText, OtherProgramsFormats) {
  const Directory dir;
  write_text(dir / "a.jsonl", lines(300));
  TokenizeTextOptions options{{dir / "a.jsonl"}, dir / "plain.bin"};
  tokenize_text(tokenizer(), options);
  const std::vector<std::uint16_t> ids = ids_at(dir / "plain.bin");
  for (const auto& [format, name] :
       {std::pair{OutputFormat::megatron, "m.bin"}, {OutputFormat::llm_c, "c.bin"}, {OutputFormat::ds, "d.ds"}}) {
    options.format = format;
    options.output = dir / name;
    options.round_bytes = 1000;
    EXPECT_EQ(tokenize_text(tokenizer(), options).documents, 300) << name;
    std::string stored = read_text(dir / name);
    if (format == OutputFormat::llm_c) stored.erase(0, 1024);
    EXPECT_EQ(stored, read_text(dir / "plain.bin")) << name;
  }
  // An index of 300 documents: 34 bytes, then lengths, offsets and documents.
  EXPECT_EQ(read_text(dir / "m.idx").size(), 34u + 300 * 4 + 300 * 8 + 301 * 8);
  EXPECT_EQ(read_text(dir / "d.ds.index").size(), 300u * 8);
  std::int64_t last = 0;
  std::memcpy(&last, read_text(dir / "d.ds.index").data() + 299 * 8, 8);
  EXPECT_EQ(last, static_cast<std::int64_t>(ids.size()));
}

TEST(TokenizeText, CompressedLinesAreTheSame) {
  const Directory dir;
  const std::string text = lines(3000);
  write_text(dir / "a.jsonl", text);
  write_gzip(dir / "a.jsonl.gz", text);
  write_zstd(dir / "a.jsonl.zst", text);
  TokenizeTextOptions options{{dir / "a.jsonl"}, dir / "plain.bin"};
  const auto plain = tokenize_text(tokenizer(), options);
  EXPECT_EQ(plain.documents, 3000);
  for (const char* name : {"a.jsonl.gz", "a.jsonl.zst"}) {
    options.inputs = {dir / name};
    options.output = dir / "other.bin";
    options.round_bytes = 10'000;
    EXPECT_EQ(tokenize_text(tokenizer(), options).tokens, plain.tokens);
    EXPECT_EQ(read_text(dir / "other.bin"), read_text(dir / "plain.bin"));
    const std::string broken = read_text(dir / name);
    write_text(dir / name, broken.substr(0, broken.size() - 20));
    EXPECT_THROW(tokenize_text(tokenizer(), options), BadInput);
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "other.bin.partial"));
  EXPECT_FALSE(std::filesystem::exists(dir / "other.bin.progress"));
}

TEST(TokenizeText, DocumentsEndWithTheirId) {
  const Directory dir;
  write_text(dir / "a.txt", "a");
  write_text(dir / "none.txt", "");
  write_text(dir / "b.txt", "b\r\n");
  TokenizeTextOptions options{{dir / "a.txt", dir / "none.txt", dir / "b.txt"}, dir / "out.bin"};
  options.document_end = 0;
  const auto result = tokenize_text(tokenizer(), options);
  EXPECT_EQ(result.documents, 2);
  const auto ids = ids_at(dir / "out.bin");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 2);
  EXPECT_EQ(ids.back(), 0);
}

// Each document with text, a file or a line, has the id before it; an empty one has none.
TEST(TokenizeText, DocumentsBeginWithTheirId) {
  const Directory dir;
  write_text(dir / "a.txt", "a");
  write_text(dir / "none.txt", "");
  write_text(dir / "b.jsonl", "{\"text\": \"b\"}\n{\"text\": \"\"}\n{\"text\": \"a\"}\n");
  TokenizeTextOptions options{{dir / "a.txt", dir / "none.txt", dir / "b.jsonl"}, dir / "out.bin"};
  tokenize_text(tokenizer(), options);
  const auto plain = ids_at(dir / "out.bin");
  ASSERT_EQ(plain.size(), 3U);
  options.document_begin = 1, options.document_end = 0;
  EXPECT_EQ(tokenize_text(tokenizer(), options).tokens, 9);
  using Ids = std::remove_const_t<decltype(plain)>;
  EXPECT_EQ(ids_at(dir / "out.bin"), (Ids{1, plain[0], 0, 1, plain[1], 0, 1, plain[2], 0}));
}

// A run that is killed leaves what it has; here the process lives on, and the failure of a later file is what ends it.
TEST(TokenizeText, GoesOnWhereAKilledRunStopped) {
  const Directory dir;
  write_text(dir / "a.jsonl", lines(4000));
  write_text(dir / "b.txt", "the end");
  TokenizeTextOptions options{{dir / "a.jsonl", dir / "b.txt"}, dir / "whole.bin"};
  options.round_bytes = 20'000;
  tokenize_text(tokenizer(), options);
  options.output = dir / "out.bin";
  // What the run has written is kept at each progress, as if it died there.
  int rounds = 0;
  for (const int stop : {1, 3, 5}) {
    rounds = 0;
    const std::filesystem::path partial = dir / "out.bin.partial", note = dir / "out.bin.progress";
    std::filesystem::copy_options over = std::filesystem::copy_options::overwrite_existing;
    options.after_round = [&] {
      if (++rounds != stop) return;
      std::filesystem::copy_file(partial, dir / "kept", over);
      std::filesystem::copy_file(note, dir / "kept.note", over);
    };
    tokenize_text(tokenizer(), options);
    std::filesystem::copy_file(dir / "kept", partial, over);
    std::filesystem::copy_file(dir / "kept.note", note, over);
    std::filesystem::remove(dir / "out.bin");
    options.after_round = {};
    EXPECT_TRUE(tokenize_text(tokenizer(), options).resumed);
    EXPECT_EQ(read_text(dir / "out.bin"), read_text(dir / "whole.bin")) << stop;
    EXPECT_FALSE(std::filesystem::exists(note));
    // Of another call nothing is taken.
    for (const auto token : {&TokenizeTextOptions::document_begin, &TokenizeTextOptions::document_end}) {
      std::filesystem::copy_file(dir / "kept", partial, over);
      std::filesystem::copy_file(dir / "kept.note", note, over);
      auto other = options;
      other.*token = 0;
      EXPECT_FALSE(tokenize_text(tokenizer(), other).resumed);
    }
  }
}

// While a run writes, another one to the same name is refused and changes nothing; behind it, the name is free.
TEST(TokenizeText, OneWriterOfAName) {
  const Directory dir;
  write_text(dir / "a.jsonl", lines(2000));
  TokenizeTextOptions options{{dir / "a.jsonl"}, dir / "whole.bin"};
  options.round_bytes = 20'000;
  tokenize_text(tokenizer(), options);
  options.output = dir / "out.bin";
  auto other = options;
  int refused = 0;
  options.after_round = [&] {
    for (const auto format : {OutputFormat::smallest, OutputFormat::llm_c}) {
      other.format = format;
      expect_mentions(refusal([&] { tokenize_text(tokenizer(), other); }),
                      {"out.bin", "another process", ".out.bin.lock"});
    }
    expect_mentions(refusal([&] { tokenize_bytes({{dir / "a.jsonl"}, dir / "out.bin"}); }), {"another process"});
    ++refused;
  };
  tokenize_text(tokenizer(), options);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(read_text(dir / "out.bin"), read_text(dir / "whole.bin"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out.bin.partial"));
  other.format = OutputFormat::smallest;
  tokenize_text(tokenizer(), other);
  EXPECT_EQ(read_text(dir / "out.bin"), read_text(dir / "whole.bin"));
}

// What a run would write on the way to its output is no input.
TEST(TokenizeText, NoInputIsOverwritten) {
  const Directory dir;
  for (const std::string name : {"out.bin", "out.bin.partial", "out.bin.progress", "out.bin.progress.new",
                                 "out.bin.index", "out.bin.metadata", "out.idx"}) {
    write_text(dir / name, "some text");
    expect_mentions(refusal([&] { tokenize_text(tokenizer(), {{dir / name}, dir / "out.bin"}); }), {name, "out.bin"});
    expect_mentions(refusal([&] { tokenize_bytes({{dir / name}, dir / "out.bin"}); }), {name, "out.bin"});
    EXPECT_EQ(read_text(dir / name), "some text");
    std::filesystem::remove(dir / name);
  }
  write_text(dir / "a.txt", "some text");
  expect_mentions(refusal([&] { tokenize_text(tokenizer(), {{dir / "a.txt"}, dir.path().string()}); }), {"directory"});
}

// A finished output takes the place of what has its name: that is never a device, nor a link to another file.
TEST(TokenizeText, OnlyFilesAreReplaced) {
  const Directory dir;
  write_text(dir / "a.txt", "some text");
  write_text(dir / "target", "kept");
  std::filesystem::create_symlink(dir / "target", dir / "link");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  for (const auto& [name, word] : {std::pair("link", "symbolic link"), std::pair("pipe", "pipe")}) {
    expect_mentions(refusal([&] { tokenize_text(tokenizer(), {{dir / "a.txt"}, dir / name}); }), {name, word});
    expect_mentions(refusal([&] { tokenize_bytes({{dir / "a.txt"}, dir / name}); }), {name, word});
  }
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_TRUE(std::filesystem::is_fifo(dir / "pipe"));
  EXPECT_EQ(read_text(dir / "target"), "kept");
}

TEST(TokenizeText, ArchivesAreNoTexts) {
  const Directory dir;
  for (const std::string name : {"a.tar.gz", "a.jsonl.xz", "a.zip", "a.parquet"}) {
    write_text(dir / name, "some text");
    expect_mentions(refusal([&] { tokenize_text(tokenizer(), {{dir / name}, dir / "out.bin"}); }), {name, ".jsonl"});
  }
}

TEST(TextFile, LinesOfJsonAreKnownByNameOrByContent) {
  const Directory dir;
  const std::string lines = "{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n";
  const auto is_lines = [&](const std::string& name, const std::string& text, const std::string& field = "text") {
    write_text(dir / name, text);
    return TextFile(dir / name, field).kind().json_lines;
  };
  for (const char* name : {"a.jsonl", "a.JSONL", "a.ndjson", "a.jl", "a.json", "a.jsonl.1", "a.txt", "a"})
    EXPECT_TRUE(is_lines(name, lines)) << name;
  for (const char* name : {"b.jsonl.gz", "b.json.gz", "b.jsonl.GZ", "b.ndjson.gzip", "b.txt", "b.jsonl.gz.1", "b"})
    EXPECT_TRUE(is_lines(name, gzip_of(lines))) << name;
  // Maps without the field, and text that only begins so, are texts where the name says nothing.
  EXPECT_FALSE(is_lines("c.txt", "{\"a\": 1}\n{\"a\": 2}\n"));
  EXPECT_FALSE(is_lines("c.txt", lines + "and so on\n"));
  EXPECT_TRUE(is_lines("c.txt", "{\"a\": \"x\"}\n", "a"));
  EXPECT_TRUE(is_lines("c.txt", "{\"text\": \"" + std::string(1 << 17, 'x') + "\"}\n"));
  EXPECT_FALSE(is_lines("c.txt", std::string(1 << 17, 'x')));
  for (const char* text : {"[{\"text\": \"a\"}]", "{\n  \"text\": \"a\"\n}\n", "no JSON"})
    expect_mentions(refusal([&] { is_lines("d.json", text); }), {"d.json", "jq -c"});
}

TEST(TextFile, OtherFilesAreRefusedByTheirContent) {
  const Directory dir;
  const auto refuse = [&](const std::string& name, const std::string& bytes, const std::string& word) {
    write_text(dir / name, bytes);
    expect_mentions(refusal([&] { TextFile file(dir / name); }), {name, word});
  };
  using namespace std::string_literals;
  refuse("a.txt", "%PDF-1.7 and so on", "PDF");
  refuse("a.txt", "version https://git-lfs.github.com/spec/v1\noid", "Git LFS");
  refuse("a.txt",
         "\xFF\xFE"
         "a\0b\0"s,
         "UTF-16");
  refuse("a.txt", gzip_of("BZh91AY&SY and so on"), "bzip2");
  refuse("a.txt.gz", gzip_of(gzip_of("twice")), "gzip");
  refuse("a.gz", "plain text", "neither gzip nor zstd");
  for (const char* name : {"a.br", "a.lzma", "a.SNAPPY", "a.arrow"}) refuse(name, "something", name + 1);
}

TEST(TextFile, ZerosBehindGzipArePadding) {
  const Directory dir;
  write_text(dir / "a.gz", gzip_of("some text") + std::string(1000, '\0'));
  std::string text;
  TextFile file(dir / "a.gz");
  while (file.read(text, 100)) {
  }
  EXPECT_EQ(text, "some text");
  write_text(dir / "a.gz", gzip_of("some text") + std::string(1000, '\0') + "x");
  expect_mentions(refusal([&] { TextFile(dir / "a.gz"); }), {"behind its gzip data"});
}

TEST(TokenizeText, CountsWhatIsNoUtf8) {
  const Directory dir;
  write_text(dir / "a.txt", "good \xC3\xA9");
  write_text(dir / "b.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\xFF\xFE\"}\n");
  const IllFormedBytes found = tokenize_text(tokenizer(), {{dir / "a.txt", dir / "b.jsonl"}, dir / "o.bin"}).ill_formed;
  EXPECT_EQ(found.bytes, 2);
  EXPECT_EQ(found.first, dir / "b.jsonl" + ":2");
}

TEST(TokenizeText, BadLinesAreNamed) {
  const Directory dir;
  const auto refuse = [&](const std::string& line, const std::vector<std::string>& words) {
    write_text(dir / "a.jsonl", "{\"text\": \"good\"}\n\n" + line + "\n");
    expect_mentions(refusal([&] { tokenize_text(tokenizer(), {{dir / "a.jsonl"}, dir / "out.bin"}); }), words);
    EXPECT_FALSE(std::filesystem::exists(dir / "out.bin.partial"));
  };
  refuse("{\"text\": \"x\"", {"a.jsonl:3", "not JSON"});
  refuse("{\"text\": 1}", {"a.jsonl:3", "'text'", "no text"});
  refuse("{\"Text\": \"\"}", {"a.jsonl:3", "missing"});
  refuse("[]", {"a.jsonl:3", "not JSON"});
  write_text(dir / "x.parquet", "PAR1");
  expect_mentions(refusal([&] { TextFile file(dir / "x.parquet"); }), {"Parquet", "parquet_to_jsonl.py"});
}

TEST(JsonLineKind, ReadsTextsAsJsonDoes) {
  std::string text;
  std::size_t at = 0;
  const auto read = [&](const std::string& line) { return read_json_field(line, "t", text, at); };
  EXPECT_EQ(read(R"({"a": [1, -2.5e3, {"t": "no"}], "t": "\u00e9\ud83d\ude00\n\"\\\/\ud800x", "z": null})"),
            JsonLineKind::found);
  EXPECT_EQ(text, "\xC3\xA9\xF0\x9F\x98\x80\n\"\\/\xEF\xBF\xBDx");
  EXPECT_EQ(read(R"( {"t":"a","t":"b"} )"), JsonLineKind::found);
  EXPECT_EQ(text, "b");
  EXPECT_EQ(read("{}"), JsonLineKind::no_field);
  EXPECT_EQ(read(R"({"t": null})"), JsonLineKind::other_type);
  for (const char* bad : {"", "{", "{\"t\"}", "{\"t\":}", "{\"t\":\"a\"}x", "{\"t\":\"a\",}", "{\"t\":01}",
                          "{\"t\":\"\\x\"}", "{\"t\":1.}"})
    EXPECT_EQ(read(bad), JsonLineKind::no_json) << bad;
  // As Python's json writes and reads them.
  EXPECT_EQ(read(R"({"a": NaN, "b": [Infinity, -Infinity], "t": "x"})"), JsonLineKind::found);
  EXPECT_EQ(read(R"({"t": NaN})"), JsonLineKind::other_type);
  for (const char* bad : {R"({"a": nan})", R"({"a": -NaN, "t": ""})", R"({"a": +Infinity})", R"({"a": Infinit})"})
    EXPECT_EQ(read(bad), JsonLineKind::no_json) << bad;
  EXPECT_EQ(read("{\"a\":" + std::string(100'000, '[')), JsonLineKind::no_json);
}

}  // namespace
}  // namespace forge
