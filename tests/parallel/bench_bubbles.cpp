// The measured idle share of every pipeline schedule beside the schedule's own figure: stages sleep a fixed time
// instead of computing, ranks are threads. Run by hand:
//   bench_bubbles [F B W in ms, default 10 10 10] [repeats, default 3] [ranks, default 4 and 8] [M, default 8, 16, 32]
// Any rank's wake-up that comes late delays the others too, so that a busy machine shows as idle time.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

#include "config/schedule_name.hpp"
#include "schedule/generate.hpp"
#include "schedule/lower.hpp"
#include "schedule/schedule_times.hpp"
#include "sleeping_stages.hpp"

namespace {

using forge::ScheduleName;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const forge::ScheduleRequest& request, const forge::SleepTimes& times, int repeats) {
  const forge::Schedule schedule = forge::lower(forge::generate(request));
  const auto seconds = [&](forge::Op op) { return std::chrono::duration<double>(times.of(op)).count(); };
  const auto own = forge::timeline(
      schedule, forge::uniform_durations(seconds(forge::Op::forward), seconds(forge::Op::backward_input),
                                         seconds(forge::Op::backward_weight)));
  std::vector<double> shares;
  for (int i = 0; i < repeats; ++i) shares.push_back(forge::run_sleeping(schedule, times).idle_share());
  const double best = *std::min_element(shares.begin(), shares.end()), share = own.bubble_fraction();
  std::printf("%5d %3d  %-12s %7.4f %8.4f %8.4f %+8.2f %% %+8.2f %%\n", request.ranks, request.microbatches,
              schedule.name.c_str(), share, median(shares), best, 100 * (median(shares) - share), 100 * (best - share));
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  double ms[3] = {10, 10, 10};
  for (int i = 0; i < 3 && i + 1 < argc; ++i) ms[i] = std::atof(argv[i + 1]);
  const int repeats = argc > 4 ? std::atoi(argv[4]) : 3;
  const auto chosen = [&](int i, std::vector<int> otherwise) {
    return argc > i ? std::vector<int>{std::atoi(argv[i])} : std::move(otherwise);
  };
  if (std::min({ms[0], ms[1], ms[2]}) <= 0 || repeats < 1) {
    std::fprintf(stderr, "usage: bench_bubbles [F B W in ms] [repeats] [ranks] [M]\n");
    return 2;
  }
  forge::SleepTimes times;
  const auto of = [](double t) { return std::chrono::microseconds(static_cast<long>(1000 * t)); };
  times.forward = of(ms[0]);
  times.backward_input = of(ms[1]);
  times.backward_weight = of(ms[2]);
  std::printf("F %.3g ms, B %.3g ms, W %.3g ms of a stage's chunk; %d runs\n", ms[0], ms[1], ms[2], repeats);
  std::printf("ranks   M  schedule         own   median     best  difference, of the step\n");
  for (const int ranks : chosen(5, {4, 8}))
    for (const int microbatches : chosen(6, {8, 16, 32}))
      for (const auto name : {ScheduleName::gpipe, ScheduleName::one_f_one_b, ScheduleName::interleaved,
                              ScheduleName::zero_bubble, ScheduleName::zb_v})
        measure({name, ranks, name == ScheduleName::interleaved ? 2 : 1, microbatches, 0}, times, repeats);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
