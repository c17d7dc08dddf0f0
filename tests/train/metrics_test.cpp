#include "train/metrics.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "train/run_directory.hpp"

namespace forge {
namespace {

namespace fs = std::filesystem;

// Unlike for every process: the test runs as several ranks side by side.
class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/forge_run_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path = name;
  }
  void TearDown() override { fs::remove_all(path); }
  static std::string text_of(const fs::path& file) {
    std::ostringstream out;
    out << std::ifstream(file).rdbuf();
    return out.str();
  }
  fs::path path;
};

TEST(Metrics, NumbersReadBackExactly) {
  StepRecord r;
  r.loss = 0.1 + 0.2;
  r.grad_norm = std::nan("");
  const std::string line = to_json(r);
  const auto at = line.find("\"loss\": ") + 8;
  EXPECT_EQ(std::strtod(line.c_str() + at, nullptr), r.loss);
  EXPECT_NE(line.find("\"grad_norm\": null"), std::string::npos);
  EXPECT_EQ(line.back(), '\n');
}

TEST(Metrics, LossOfFurtherTokensWhereThereAreAny) {
  StepRecord r;
  EXPECT_EQ(to_json(r).find("mtp_loss"), std::string::npos);
  r.mtp_loss = 0;
  EXPECT_NE(to_json(r).find("\"mtp_loss\": 0,"), std::string::npos);
}

TEST_F(RunDirectoryTest, MovesEarlierMetricsAside) {
  for (int run = 0; run < 3; ++run) {
    RunDirectory directory(path.string());
    directory.begin();
    directory.metrics("run " + std::to_string(run) + "\n");
    directory.write_file("deck.yaml", "x: " + std::to_string(run));
  }
  EXPECT_EQ(text_of(path / "metrics.jsonl"), "run 2\n");
  EXPECT_EQ(text_of(path / "metrics.1.jsonl"), "run 0\n");
  EXPECT_EQ(text_of(path / "metrics.2.jsonl"), "run 1\n");
  EXPECT_EQ(text_of(path / "deck.yaml"), "x: 2");
}

// What a restart finds behind its step goes: later steps, a torn line. What stands before stays as it is.
TEST_F(RunDirectoryTest, ResumesBehindAStep) {
  const std::string kept =
      "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2.5}\n{\"step\": 2, \"validation_loss\": 4}\n";
  const auto resumed = [&](const std::string& text, std::int64_t step) {
    std::ofstream(path / "metrics.jsonl", std::ios::binary) << text;
    RunDirectory directory(path.string());
    directory.resume(step);
    directory.metrics("{\"step\": " + std::to_string(step + 1) + "}\n");
    return text_of(path / "metrics.jsonl");
  };
  EXPECT_EQ(resumed(kept + "{\"step\": 3, \"loss\": 2}\n", 2), kept + "{\"step\": 3}\n");
  EXPECT_EQ(resumed(kept + "{\"step\": 3, \"lo", 7), kept + "{\"step\": 8}\n");
  EXPECT_EQ(resumed(kept, 7), kept + "{\"step\": 8}\n");
  EXPECT_EQ(resumed(kept, 0), "{\"step\": 1}\n");
  EXPECT_EQ(resumed("", 4), "{\"step\": 5}\n");
}

// A torn or blank line, or a block of zeros, costs no good one behind it, and is said; so are steps without a line.
TEST_F(RunDirectoryTest, KeepsGoodLinesBehindATornOne) {
  const auto line = [](int step) { return "{\"step\": " + std::to_string(step) + ", \"loss\": 3}\n"; };
  std::string notes;
  const auto resumed = [&](const std::string& text, std::int64_t step) {
    std::ofstream(path / "metrics.jsonl", std::ios::binary) << text;
    RunDirectory directory(path.string());
    notes.clear();
    for (const std::string& note : directory.resume(step)) notes += note + "\n";
    return text_of(path / "metrics.jsonl");
  };
  const auto says = [&](const std::string& text) { return notes.find(text) != std::string::npos; };
  EXPECT_EQ(resumed(line(1) + "{\"step\": 2, \"lo\n" + line(3) + "\n" + line(4) + line(5), 4),
            line(1) + line(3) + line(4));
  EXPECT_TRUE(says("torn or blank, and are left out: 2")) << notes;
  EXPECT_TRUE(says("no lines of these steps, which the checkpoint has done: 2\n")) << notes;
  EXPECT_EQ(
      resumed(std::string(5000, '\0') + "\n" + line(6) + "{\"step\": 7, \"{\"step\": 7}\n" + line(8) + line(9), 12),
      line(6) + line(8) + line(9));
  EXPECT_TRUE(says("done: 7, 10 to 12\n")) << notes;
  EXPECT_EQ(resumed("", 8), "");
  EXPECT_TRUE(says("done: 1 to 8\n")) << notes;
  EXPECT_EQ(resumed(line(1) + line(2) + line(3) + "{\"st", 3), line(1) + line(2) + line(3));
  EXPECT_EQ(notes, "");
}

// Neither followed nor waited for.
TEST_F(RunDirectoryTest, RefusesLinksAndPipes) {
  std::ofstream(path / "victim") << "mine";
  for (const char* name : {"metrics.jsonl", "log.txt", ".lock"}) {
    fs::create_symlink("victim", path / name);
    EXPECT_THROW(RunDirectory(path.string()), BadInput) << name;
    fs::remove(path / name);
    ASSERT_EQ(mkfifo((path / name).c_str(), 0600), 0);
    EXPECT_THROW(RunDirectory(path.string()), BadInput) << name;
    fs::remove(path / name);
  }
  EXPECT_EQ(text_of(path / "victim"), "mine");
}

TEST_F(RunDirectoryTest, SaysThatItWasRemoved) {
  const fs::path run = path / "run";
  RunDirectory directory(run.string());
  directory.begin();
  directory.metrics("{\"step\": 1}\n");
  directory.sync();
  fs::rename(run, path / "elsewhere");
  EXPECT_THROW(directory.finish(), IoFailed);
  fs::create_directory(run);
  std::ofstream(run / "metrics.jsonl") << "another's";
  EXPECT_THROW(directory.finish(), IoFailed);
}

// The clock of a run goes on behind the last line that a restart keeps.
TEST_F(RunDirectoryTest, KnowsHowLongTheRunTook) {
  std::ofstream(path / "metrics.jsonl")
      << "{\"step\": 1, \"elapsed_seconds\": 2.5}\n{\"step\": 2, \"elapsed_seconds\": 40.25}\n"
      << "{\"step\": 3, \"elapsed_seconds\": 99}\n";
  RunDirectory directory(path.string());
  directory.resume(2);
  EXPECT_EQ(directory.elapsed_before(), 40.25);
  const RunDirectory other(path.string() + "/other");
  EXPECT_EQ(other.elapsed_before(), 0);
}

TEST_F(RunDirectoryTest, IsLockedWhileInUse) {
  const RunDirectory first(path.string());
  try {
    const RunDirectory second(path.string(), LockTimes{0.2});
    FAIL() << "two jobs in one directory";
  } catch (const BadInput& error) {
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos);
  }
}

// Of a dead job; what a person has named so stays.
TEST_F(RunDirectoryTest, RemovesItsTemporaries) {
  const std::vector<std::string> others{"notes.tmp", ".notes.tmp", ".0123456789abcde.tmp", ".0123456789abcdeg.tmp",
                                        "0123456789abcdef.tmp"};
  for (const std::string& name : others) std::ofstream(path / name) << "mine";
  std::ofstream(path / ".0123456789abcdef.tmp") << "torn";
  {
    const RunDirectory directory(path.string());
    EXPECT_FALSE(fs::exists(path / ".0123456789abcdef.tmp"));
    directory.write_file("deck.yaml", "text");
    EXPECT_THROW(directory.write_file("none/deck.yaml", "text"), IoFailed);
  }
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(path / name)) << name;
  EXPECT_TRUE(fs::exists(path / "deck.yaml"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path), {}), static_cast<std::ptrdiff_t>(others.size() + 1));
}

TEST(StepRecord, HasTheSourcesOfAMixture) {
  StepRecord record;
  EXPECT_EQ(to_json(record).find("sources"), std::string::npos);
  record.sources = {{"web", 2.5, 10, 640, 0.25}, {"code", std::nan(""), 0, 64, 1.5}};
  EXPECT_NE(to_json(record).find(R"("sources": {"web": {"loss": 2.5, "labels": 10, "tokens": 640, "epochs": 0.25}, )"
                                 R"("code": {"loss": null, "labels": 0, "tokens": 64, "epochs": 1.5}})"),
            std::string::npos)
      << to_json(record);
  EXPECT_EQ(sources_line(record.sources), "            web 2.5000 (0.25 epochs), code - (1.5 epochs)\n");
  EXPECT_EQ(sources_line({}), "");
}

TEST(StepRecord, HasThePartsOfTheStart) {
  StepRecord record;
  EXPECT_EQ(to_json(record).find("start_seconds"), std::string::npos);
  record.start = {{"MPI_Init", 0.1234}, {"parameters", 2}};
  EXPECT_NE(to_json(record).find(R"("start_seconds": {"MPI_Init": 0.123, "parameters": 2})"), std::string::npos)
      << to_json(record);
}

TEST(RunDirectory, SaysWhyItCannotBeMade) {
  EXPECT_THROW(RunDirectory("/proc/forge"), IoFailed);
}

}  // namespace
}  // namespace forge
