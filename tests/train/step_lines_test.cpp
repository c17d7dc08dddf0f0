#include "train/step_lines.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <ctime>

#include "../train/rig.hpp"
#include "train/job_record.hpp"
#include "train/leaving.hpp"

namespace forge::test {
namespace {

StepRecord step_of(std::int64_t step, double loss = 1, double seconds = 1) {
  StepRecord record;
  record.step = step;
  record.loss = loss;
  record.step_seconds = seconds;
  record.tokens_per_second = 100 / seconds;
  record.mfu = 0.5 / seconds;
  return record;
}

StepLines::Clock::time_point at(double seconds) {
  return StepLines::Clock::time_point(
      std::chrono::duration_cast<StepLines::Clock::duration>(std::chrono::duration<double>(seconds)));
}

std::vector<std::int64_t> shown(StepLines lines, std::int64_t first, std::int64_t last, double seconds) {
  std::vector<std::int64_t> steps;
  for (std::int64_t s = first; s <= last; ++s)
    if (lines.add(step_of(s), 100, at(static_cast<double>(s) * seconds))) steps.push_back(s);
  return steps;
}

TEST(StepLines, ShowTheFirstEachSoManyAndTheLast) {
  EXPECT_EQ(shown({1, 23, 10}, 1, 23, 0.001), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 10, 20, 23}));
  EXPECT_EQ(shown({8, 23, 10}, 8, 23, 0.001), (std::vector<std::int64_t>{8, 9, 10, 11, 12, 20, 23}));
}

// Four seconds a step: each third one.
TEST(StepLines, ShowOneWheneverTenSecondsArePast) {
  EXPECT_EQ(shown({1, 20, 1000}, 1, 20, 4), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 8, 11, 14, 17, 20}));
}

TEST(StepLines, AreMeansSinceTheLineBefore) {
  StepLines lines(1, 20, 10);
  for (std::int64_t s = 1; s < 10; ++s) {
    const auto line = lines.add(step_of(s, 5, 2), 100, at(0));
    EXPECT_EQ(line ? line->loss : 5, 5);
  }
  // Steps 6 to 10: four of 2 s and one of 12 s.
  const auto line = lines.add(step_of(10, 10, 12), 100, at(0));
  ASSERT_TRUE(line.has_value());
  EXPECT_DOUBLE_EQ(line->loss, 6);
  EXPECT_DOUBLE_EQ(line->tokens_per_second, 500.0 / 20);
  EXPECT_DOUBLE_EQ(line->mfu, 0.5 / 12 / (100.0 / 12) * 25);
}

// Losses of sources are means over labels, and a step without an update shows its own.
TEST(StepLines, KnowSourcesAndStepsWithoutAnUpdate) {
  StepLines lines(1, 100, 1000);
  for (std::int64_t s = 1; s <= 6; ++s) lines.add(step_of(s), 100, at(0));
  StepRecord record = step_of(7, 2);
  record.sources = {{"a", 4, 30, 0, 0}, {"b", std::nan(""), 0, 0, 0}};
  EXPECT_FALSE(lines.add(record, 100, at(0)));
  record.step = 8;
  record.sources = {{"a", 8, 10, 0, 0}, {"b", std::nan(""), 0, 0, 0}};
  const auto line = lines.add(record, 100, at(20));
  ASSERT_TRUE(line.has_value());
  EXPECT_DOUBLE_EQ(line->sources[0].loss, 5);
  EXPECT_EQ(line->sources[0].labels, 40);
  EXPECT_EQ(line->sources[1].labels, 0);
  StepRecord bad = step_of(9, std::nan(""));
  bad.finite = false;
  const auto shown = lines.add(bad, 100, at(20));
  ASSERT_TRUE(shown.has_value());
  EXPECT_TRUE(std::isnan(shown->loss));
  EXPECT_EQ(lines.add(step_of(10), 100, at(40))->loss, 1);
}

// The first rank's clock counts, and what all have agreed on stays.
TEST(Leaving, IsAgreedOn) {
  const auto world = environment->make_world();
  unsetenv("SLURM_JOB_END_TIME");
  Leaving never(*world, 10);
  EXPECT_EQ(never.agree(1e9, world->rank() + 1), world->size());
  EXPECT_FALSE(never.agreed());
  setenv("SLURM_JOB_END_TIME", std::to_string(std::time(nullptr) + 1000).c_str(), 1);
  Leaving leaving(*world, 10);
  EXPECT_NEAR(leaving.most_of_estimates(), 500, 5);
  StopPoints points;
  EXPECT_FALSE(points.stop(leaving, 900));
  EXPECT_TRUE(StopPoints().stop(leaving, 995));
  EXPECT_EQ(leaving.asked(995), world->rank() == 0);
  unsetenv("SLURM_JOB_END_TIME");
  leaving.agree(0);
  EXPECT_TRUE(leaving.agreed());
  try {
    leaving.leave("saved");
  } catch (const LeftOnInterrupt&) {
    FAIL() << "of a signal that never came";
  } catch (const LeftOnSignal& left) {
    EXPECT_STREQ(left.what(), "saved: the job's time limit is near");
  }
}

TEST(JobRecord, SaysWhenWithTheZone) {
  const char* before = std::getenv("TZ");
  const std::string zone = before ? before : "";
  setenv("TZ", "Asia/Kolkata", 1);
  tzset();
  EXPECT_EQ(iso_time(1764295811), "2025-11-28T07:40:11+05:30");
  setenv("TZ", "America/New_York", 1);
  tzset();
  EXPECT_EQ(iso_time(1764295811), "2025-11-27T21:10:11-05:00");
  before ? setenv("TZ", zone.c_str(), 1) : unsetenv("TZ");
  tzset();
}

TEST(JobRecord, CommandIsWhatAShellTakes) {
  EXPECT_EQ(command_text({"forge", "a b.yaml", "--set", "x=it's", "", "two\nlines"}),
            "forge 'a b.yaml' --set 'x=it'\\''s' '' 'two?lines'");
}

TEST(JobRecord, NamesTheFirstNodes) {
  JobRecord record;
  record.nodes = 9;
  record.hosts = {"n1", "n2"};
  record.batch_system = "Slurm";
  record.job = "12";
  record.arguments = {"forge"};
  const std::string lines = record_lines(record);
  EXPECT_NE(lines.find(" on n1, n2, … (9 nodes); Slurm job 12\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("  command   forge\n"), std::string::npos) << lines;
}

}  // namespace
}  // namespace forge::test
