#include "hf/safetensors.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "../config/support.hpp"
#include "core/types.hpp"
#include "hf/tensor_directory.hpp"

namespace forge {
namespace {

using test::Directory;
using test::expect_bad_input;

// A file with this header and so many bytes behind it.
std::string file_of(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + std::string(data, '\1');
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

void expect_refused(const std::string& content, std::initializer_list<const char*> parts) {
  const Directory directory;
  const std::string file = directory.write("x.safetensors", content);
  expect_bad_input([&] { TensorFiles::open(file); }, parts);
  expect_bad_input([&] { TensorFiles::open(file); }, {file.c_str()});
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(Safetensors, WrittenTensorsReadBack) {
  const Directory directory;
  const std::string path = directory.path() + "/model.safetensors";
  const std::vector<double> wide = {1.0 / 3, -0.0, 1e300, 5e-324, 0.1, 7};
  const std::vector<float> narrow = {1.0f / 3, -2.5f, 1e-40f};
  const std::vector<bf16> half = {bf16(1.5f), bf16(-3.0f)};
  {
    SafetensorsWriter writer(path,
                             {{"narrow", "F32", {3}},
                              {"half", "BF16", {1, 2}},
                              {"wide", "F64", {2, 3}},
                              {"none", "F32", {0, 4}},
                              {"one", "F64", {}}},
                             {{"format", "pt"}, {"loss", "1.5"}});
    writer.write("half", bytes_of(half));
    writer.write("wide", bytes_of(wide).subspan(16), 16);
    writer.write("one", bytes_of(wide).first(8));
    writer.write("wide", bytes_of(wide).first(16));
    writer.write("narrow", bytes_of(narrow));
    writer.finish();
  }
  const TensorFiles files = TensorFiles::open(directory.path());
  EXPECT_EQ(files.names(), (std::vector<std::string>{"half", "narrow", "none", "one", "wide"}));
  EXPECT_EQ(files.metadata().at("loss"), "1.5");
  EXPECT_EQ(files.find("wide")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(files.find("other"), nullptr);
  for (const auto& name : files.names()) EXPECT_EQ(files.find(name)->offset % 2, 0u);
  EXPECT_EQ(files.find("wide")->offset % 8, 0u);
  std::vector<double> back(6);
  files.read(*files.find("wide"), back);
  EXPECT_EQ(std::memcmp(back.data(), wide.data(), 48), 0);
  std::vector<float> part(2);
  files.read(*files.find("narrow"), part, 1);
  EXPECT_EQ(part, (std::vector<float>{-2.5f, 1e-40f}));
  files.read(*files.find("half"), part);
  EXPECT_EQ(part, (std::vector<float>{1.5f, -3.0f}));
  files.read(*files.find("none"), std::span<float>());
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(Safetensors, LongTensorsAreReadInPieces) {
  const Directory directory;
  const std::string path = directory.path() + "/long.safetensors";
  std::vector<float> values(300'001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.37f;
  SafetensorsWriter writer(path, {{"x", "F32", {300'001}}}, {});
  writer.write("x", bytes_of(values));
  writer.finish();
  const TensorFiles files = TensorFiles::open(path);
  std::vector<double> back(values.size() - 5);
  files.read(*files.find("x"), back, 5);
  for (std::size_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], static_cast<double>(values[i + 5]));
}

// Every finite half and both infinities, against the definition of the format.
TEST(Safetensors, HalfPrecision) {
  const Directory directory;
  std::string data(2 * 65536, '\0');
  for (int i = 0; i < 65536; ++i) data[2 * i] = static_cast<char>(i), data[2 * i + 1] = static_cast<char>(i >> 8);
  const std::string header = "{" + entry("x", "F16", "[65536]", "[0,131072]") + "}";
  const std::string file = directory.write("x.safetensors", file_of(header, 0) + data);
  const TensorFiles files = TensorFiles::open(file);
  std::vector<double> x(65536);
  files.read(*files.find("x"), x);
  EXPECT_EQ(x[0x3c00], 1.0);
  EXPECT_EQ(x[0xc000], -2.0);
  EXPECT_EQ(x[0x7bff], 65504.0);
  EXPECT_EQ(x[0x0001], std::ldexp(1.0, -24));
  EXPECT_EQ(x[0x03ff], std::ldexp(1023.0, -24));
  EXPECT_EQ(x[0x0400], std::ldexp(1.0, -14));
  EXPECT_TRUE(std::signbit(x[0x8000]) && x[0x8000] == 0);
  EXPECT_EQ(x[0x7c00], std::numeric_limits<double>::infinity());
  EXPECT_EQ(x[0xfc00], -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(x[0x7c01]));
  for (int i = 1; i < 0x7c00; ++i) ASSERT_LT(x[i - 1], x[i]) << i;
  for (int i = 0; i < 0x7c00; ++i) ASSERT_EQ(x[i], -x[i | 0x8000]) << i;
}

TEST(Safetensors, ReadsWithinTheTensorOnly) {
  const Directory directory;
  const std::string file = directory.write(
      "x.safetensors",
      file_of("{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "I64", "[1]", "[8,16]") + "}", 16));
  const TensorFiles files = TensorFiles::open(file);
  std::vector<float> out(2);
  expect_bad_input([&] { files.read(*files.find("a"), out, 1); }, {"'a'", "elements 1 to 3 of its 2"});
  expect_bad_input([&] { files.read(*files.find("a"), out, -1); }, {"elements -1"});
  expect_bad_input([&] { files.read(*files.find("b"), std::span(out).first(1)); },
                   {"'b'", "I64", "F64 | F32 | BF16 | F16"});
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 12);
  expect_bad_input([&] { files.read(*files.find("a"), out); }, {"x.safetensors", "ends at byte"});
}

TEST(Safetensors, Header) {
  expect_refused("", {"has 0 bytes"});
  expect_refused("1234567", {"at least 8"});
  expect_refused(std::string(8, '\xff'), {"header should take 18446744073709551615 bytes", "truncated"});
  expect_refused(file_of("{}", 0).substr(0, 9), {"header should take 2 bytes", "the file has 9"});
  expect_refused(file_of("[]", 0), {"must be a JSON map"});
  expect_refused(file_of("{", 0), {"not JSON"});
  expect_refused(file_of("{\"__metadata__\":{\"a\":1}}", 0), {"__metadata__ 'a'"});
  expect_refused(file_of("{\"__metadata__\":3}", 0), {"__metadata__ is no map"});
  expect_refused(file_of("{\"a\":{\"b\":{\"c\":{\"d\":1}}}}", 0), {"nested deeper than"});
  expect_refused(file_of("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("a", "F32", "[1]", "[4,8]") + "}", 8),
                 {"'a' appears a second time"});
}

TEST(Safetensors, Entries) {
  const auto one = [](const char* type, const char* shape, const char* offsets, std::size_t data) {
    return file_of("{" + entry("a", type, shape, offsets) + "}", data);
  };
  expect_refused(file_of("{\"a\":3}", 0), {"'a'", "no map"});
  expect_refused(file_of("{\"a\":{}}", 0), {"'a'", "dtype is missing"});
  expect_refused(file_of("{\"a\":{\"dtype\":\"F32\"}}", 0), {"'a'", "shape is missing"});
  expect_refused(one("F31", "[1]", "[0,4]", 4), {"'a'", "unknown dtype 'F31'"});
  expect_refused(one("F32", "[-1]", "[0,4]", 4), {"'a'", "shape holds -1"});
  expect_refused(one("F32", "[1.0]", "[0,4]", 4), {"shape holds 1.0"});
  expect_refused(one("F32", "3", "[0,4]", 4), {"shape is missing or no list"});
  expect_refused(one("F32", "[1]", "[0]", 4), {"two numbers"});
  expect_refused(one("F32", "[1]", "[0,5]", 5), {"hold 5 bytes", "takes 4"});
  expect_refused(one("F32", "[1]", "[4,0]", 4), {"less than nothing"});
  expect_refused(one("F32", "[4611686018427387904,4611686018427387904]", "[0,4]", 4), {"no size in bytes"});
  expect_refused(one("F32", "[4294967296,4294967296]", "[0,0]", 0), {"no size in bytes"});
  expect_refused(one("F4", "[3]", "[0,1]", 1), {"no size in bytes"});
  expect_refused(one("F32", "[18446744073709551615]", "[0,4]", 4), {"shape holds 18446744073709551615"});
}

TEST(Safetensors, Offsets) {
  const std::string a = entry("a", "F32", "[2]", "[0,8]");
  expect_refused(file_of("{" + a + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 12), {"'b'", "they overlap"});
  expect_refused(file_of("{" + a + "," + entry("b", "F32", "[2]", "[12,20]") + "}", 20), {"'b'", "a gap"});
  expect_refused(file_of("{" + a + "}", 4), {"'a'", "ends at byte", "truncated"});
  expect_refused(file_of("{" + a + "}", 9), {"its tensors end at byte"});
  expect_refused(file_of("{}", 1), {"its tensors end at byte"});
}

TEST(Safetensors, SeveralFiles) {
  const Directory directory;
  directory.write("a-1.safetensors", file_of("{" + entry("a", "F32", "[1]", "[0,4]") + "}", 4));
  directory.write("a-2.safetensors",
                  file_of("{" + entry("b", "F32", "[2]", "[0,8]") + "," + entry("c", "U8", "[1]", "[8,9]") + "}", 9));
  const auto index = [&](const std::string& map) {
    directory.write("model.safetensors.index.json", "{\"weight_map\":" + map + "}");
  };
  const auto refused = [&](std::initializer_list<const char*> parts) {
    expect_bad_input([&] { TensorFiles::open(directory.path()); }, parts);
  };
  refused({directory.path().c_str(), "neither model.safetensors nor model.safetensors.index.json"});
  index(R"({"a":"a-1.safetensors","b":"a-2.safetensors"})");
  const TensorFiles files = TensorFiles::open(directory.path());
  EXPECT_EQ(files.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(files.file_of(*files.find("b")), directory.path() + "/a-2.safetensors");
  std::vector<float> out(2);
  EXPECT_NO_THROW(files.read(*files.find("b"), out));
  index(R"({"a":"a-2.safetensors"})");
  refused({"a-2.safetensors", "'a'", "missing"});
  index(R"({"a":"none.safetensors"})");
  refused({"none.safetensors", "No such file"});
  for (const char* bad : {"../a-1.safetensors", "/etc/passwd", "x/../../y", "", "..", "a\\u0000b"}) {
    index(std::string("{\"a\":\"") + bad + "\"}");
    refused({"weight_map 'a'", "below the directory"});
  }
  index(R"({"a":3})");
  refused({"weight_map 'a'"});
  index("[]");
  refused({"weight_map is missing or no map"});
  directory.write("model.safetensors.index.json", "{}");
  refused({"weight_map is missing"});
}

TEST(Safetensors, OnlyRegularFilesAreRead) {
  const Directory directory;
  const std::string pipe = directory.path() + "/model.safetensors";
  ASSERT_EQ(std::system(("mkfifo " + pipe).c_str()), 0);
  expect_bad_input([&] { TensorFiles::open(directory.path()); }, {"not a regular file"});
  expect_bad_input([] { TensorFiles::open("/dev/zero"); }, {"/dev/zero", "not a regular file"});
  expect_bad_input([] { TensorFiles::open("/nonexistent"); }, {"/nonexistent", "No such file"});
}

TEST(Safetensors, UnfinishedFilesLeaveNothing) {
  const Directory directory;
  const std::string path = directory.write("x.safetensors", "what was here");
  const std::vector<float> values = {1, 2};
  {
    SafetensorsWriter writer(path, {{"a", "F32", {2}}}, {});
    writer.write("a", bytes_of(values).first(4));
    EXPECT_THROW(writer.finish(), Error);
    EXPECT_THROW(writer.write("b", bytes_of(values)), Error);
    EXPECT_THROW(writer.write("a", bytes_of(values), 4), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_EQ(test::read_file(path), "what was here");
  EXPECT_THROW(SafetensorsWriter(path, {{"a", "F31", {2}}}, {}), Error);
  EXPECT_THROW(SafetensorsWriter(path, {{"a", "F32", {2}}, {"a", "F32", {2}}}, {}), Error);
  EXPECT_THROW(SafetensorsWriter("/nonexistent/x", {{"a", "F32", {2}}}, {}), IoFailed);
}

std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(directory)) names.insert(file.path().filename());
  return names;
}

// A directory that a model is written to again, in more or fewer files, has that model alone.
TEST(TensorDirectory, FilesOfAnEarlierModelGo) {
  const Directory directory;
  for (const char* other :
       {"config.json", "optimizer.safetensors", "model-1-of-.safetensors", "model-00001-of-00002.bin"})
    directory.write(other, "x");
  const std::set<std::string> others = names_in(directory.path());
  const std::vector<TensorInfo> tensors = {{"a", "F32", {2}}, {"b", "F32", {2}}, {"c", "F32", {2}}};
  const auto write = [&](float value, std::uint64_t most) {
    write_tensor_directory({directory.path(), "model", most}, tensors, [&](std::size_t) {
      const std::vector<float> values = {value, value};
      const std::span<const std::byte> bytes = bytes_of(values);
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    });
  };
  const auto expect_files = [&](std::set<std::string> names) {
    names.insert(others.begin(), others.end());
    EXPECT_EQ(names_in(directory.path()), names);
  };
  write(1, 8);
  expect_files({"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  write(2, 100);
  expect_files({"model.safetensors"});
  write(3, 16);
  expect_files(
      {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"});
}

}  // namespace
}  // namespace forge
