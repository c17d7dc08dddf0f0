#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cases.hpp"
#include "config/schedule_name.hpp"
#include "schedule/csv.hpp"
#include "schedule/draw.hpp"
#include "schedule/validate.hpp"

namespace forge {
namespace {

TEST(Draw, TextShowsThePipeline) {
  EXPECT_EQ(draw_text(generate({ScheduleName::one_f_one_b, 2, 1, 2}), uniform_durations(1, 1, 1)),
            "rank 0 |F0 F1       B0 W0    B1 W1\n"
            "rank 1 |   F0 B0 W0 F1 B1 W1\n"
            "1f1b: 2 ranks, 1 chunk each, 2 microbatches, bubble 33.3 % of 9\n");
  EXPECT_EQ(draw_text(generate({ScheduleName::zb_v, 1, 1, 1}), uniform_durations(1, 2, 1)),
            "rank 0 |F0a F0b B0b---- W0b B0a---- W0a\n"
            "zb_v: 1 rank, 2 chunks each, 1 microbatch, bubble 0.0 % of 8\n");
}

TEST(Draw, SvgHasABoxPerAction) {
  Schedule schedule = generate({ScheduleName::interleaved, 4, 2, 8});
  schedule.name = "a<b>&\"c\"";
  const std::string svg = draw_svg(schedule, uniform_durations(1, 1, 1));
  std::size_t boxes = 0;
  for (std::size_t i = svg.find("<rect"); i != std::string::npos; i = svg.find("<rect", i + 1)) ++boxes;
  EXPECT_EQ(boxes, 4u * 2 * 8 * 3);
  EXPECT_NE(svg.find("a&lt;b&gt;&amp;&quot;c&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("a<b>"), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(Csv, ReadsWhatItWrites) {
  for (const ScheduleRequest& request : legal_requests(4, 6, 2))
    for (const bool lowered : {false, true}) {
      Schedule schedule = generate(request);
      if (lowered) schedule = lower(schedule);
      const Schedule again = read_schedule_csv(write_schedule_csv(schedule), "x.csv");
      EXPECT_EQ(again.name, schedule.name);
      EXPECT_EQ(again.ranks, schedule.ranks);
      EXPECT_EQ(again.chunks_per_rank, schedule.chunks_per_rank);
      EXPECT_EQ(again.microbatches, schedule.microbatches);
      EXPECT_EQ(again.lowered, schedule.lowered);
      EXPECT_EQ(again.places, schedule.places);
      EXPECT_EQ(again.actions, schedule.actions);
    }
}

std::string message_of(const std::string& text) {
  try {
    read_schedule_csv(text, "x.csv");
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(Csv, ErrorsNameTheLine) {
  const std::string head = "# a comment\r\nschedule,mine,1,1,1,compute\n";
  const std::string stage = head + "stage,0,0,0\n";
  const auto expect = [](const std::string& text, const char* start) {
    EXPECT_TRUE(message_of(text).starts_with(start)) << message_of(text);
  };
  EXPECT_EQ(message_of(stage + "action,0,forward,0,0\n\naction,0,backward,0,0\n"), "");
  expect("", "x.csv: no schedule record");
  expect("stage,0,0,0\n", "x.csv:1: the first record must be schedule");
  expect("schedule,a,1,1,99999999999999999999,compute\n", "x.csv:1: microbatches must be a whole number");
  expect("schedule,a,1000,1000,1000,compute\n", "x.csv:1: stages x microbatches");
  expect("schedule,a,1,1,1,maybe\n", "x.csv:1: the last field must be compute or lowered");
  expect(head, "x.csv: no record for stage 0");
  expect(head + "stage,0,0\n", "x.csv:3: a stage record has 4 fields");
  expect(stage + "stage,0,0,0\n", "x.csv:4: stage 0 is given twice");
  expect(stage + "action,1,forward,0,0\n", "x.csv:4: rank must be a whole number from 0 to 0, but is '1'");
  expect(stage + "action,0,forwards,0,0\n", "x.csv:4: unknown operation 'forwards'; legal are forward, ");
  expect(stage + "action,0,forward,0,-1\n", "x.csv:4: microbatch must be");
  expect(stage + "action,0,forward,0,0x\n", "x.csv:4: microbatch must be");
  expect(stage + "walk,0\n", "x.csv:4: unknown record 'walk'");
  expect(stage + "action,0,forward,0,0\n", "x.csv: schedule mine: rank 0: B c0 m0 (stage 0) is missing");
}

// Random damage to a file either leaves a legal schedule or is refused; nothing else may happen.
TEST(Csv, DamagedFilesAreRefusedOrLegal) {
  const std::string good = write_schedule_csv(lower(generate({ScheduleName::zb_v, 2, 1, 2})));
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int change = 0; change < 1 + round % 3; ++change) {
      const std::size_t i = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[i] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(i, random() % 30);
          break;
        default:
          text.insert(i, text.substr(random() % text.size(), random() % 30));
      }
    }
    try {
      EXPECT_EQ(find_violation(read_schedule_csv(text, "x.csv")), "");
    } catch (const BadInput&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace forge
