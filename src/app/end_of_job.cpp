#include "app/end_of_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "app/process_start.hpp"
#include "app/refused_memory.hpp"
#include "comm/launcher.hpp"
#include "core/bytes.hpp"
#include "core/file_errors.hpp"
#include "core/last_words.hpp"
#include "core/shortage.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "device/memory_left.hpp"
#include "train/stop_request.hpp"

namespace forge {

namespace {

// What was printed before comes first, unless another thread is stuck in it.
void flush_output() {
  if (ftrylockfile(stdout) != 0) return;
  std::fflush(stdout);
  funlockfile(stdout);
}

// "n3, n4".
std::string nodes_of(const RankSet& ranks, const World& world) {
  std::vector<std::string> nodes;
  std::string list;
  for (const auto& [begin, end] : ranks.ranges())
    for (int rank = begin; rank < end; ++rank) {
      const std::string node = world.node_name(rank);
      if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) continue;
      nodes.push_back(node);
      list += (list.empty() ? "" : ", ") + node;
    }
  return list;
}

// "rank 0 to 1, 3: step 4, labels; rank 2: no answer from n3, stopped or lost", in the order of the first ranks.
std::string ranks_report(const RollCall::Outcome& outcome, const World& world) {
  std::map<int, std::string> parts;
  const auto add = [&](const RankSet& ranks, const std::string& text) {
    if (!ranks.empty()) parts[ranks.ranges().begin()->first] = "rank " + ranks.text() + ": " + text;
  };
  for (const auto& [doing, ranks] : outcome.answers) add(ranks, doing);
  add(outcome.silent, "no answer from " + nodes_of(outcome.silent, world) + ", stopped or lost");
  std::string report;
  for (const auto& [first, part] : parts) report += (report.empty() ? "" : "; ") + part;
  return report;
}

std::string out_of_memory() {
  return "out of memory: " + format_bytes(refused_bytes()) + " more are needed beside " +
         format_bytes(host_memory().resident) + " that this process has; " + memory_left_text() +
         "; legal: a smaller model, batch or text, fewer ranks a node, or more memory";
}

}  // namespace

void print_message(const char* kind, int rank, const std::string& text) {
  flush_output();
  const std::string who = rank > 0 ? " (rank " + std::to_string(rank) + ")" : "";
  const std::string line = std::string("forge: ") + kind + who + ": " + text + "\n";
  std::size_t told = 0;
  while (told < line.size()) {
    const ssize_t n = write(STDERR_FILENO, line.data() + told, line.size() - told);
    if (n <= 0) return;
    told += to_size(n);
  }
}

// Up to a second more than the least, so that of the others not all speak either; two where the launcher has sent
// SIGTERM, as it may kill this rank only after one.
void wait_for_turn(int rank, int least) {
  if (rank == 0) return;
  constexpr int turn = 10, more = 1000, ending = 2000;  // milliseconds
  const auto milliseconds = least + std::min(more, 40 * rank);
  for (int waited = 0; waited < (stop_signal() == 0 ? milliseconds : ending); waited += turn)
    std::this_thread::sleep_for(std::chrono::milliseconds(turn));
}

Failure failure_of(const std::exception_ptr& error) {
  if (!error) return {ExitCode::internal, "terminated without an exception"};
  give_back_reserve();
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const bool with_place = e.code() == ExitCode::internal || e.code() == ExitCode::library_failed;
    return {e.code(), with_place ? std::string(e.what()) + " [" + e.where() + "]" : e.what()};
  } catch (const std::filesystem::filesystem_error& e) {
    const bool wrong = is_wrong_name(e.code().value());
    return {wrong ? ExitCode::bad_input : ExitCode::io_failed, text_of(e)};
  } catch (const std::bad_alloc&) {
    return {code_of_shortage(), out_of_memory()};
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) return {ExitCode::internal, e.what()};
    return {code_of_shortage(), "the system gives no more threads: " + threads_left_text() +
                                    "; legal: fewer ranks or threads, or higher limits"};
  } catch (const std::exception& e) {
    return {ExitCode::internal, e.what()};
  } catch (...) {
    return {ExitCode::internal, "an exception of an unknown type"};
  }
}

void end_failed_job(const std::exception_ptr& error, const Environment* job) {
  const Failure failure = failure_of(error);
  const int rank = job ? job->rank() : launched_rank(), code = static_cast<int>(failure.code);
  wait_for_turn(rank);
  print_message("error", rank, failure.text);
  expect_end();
  if (job) job->abort(code);
  std::_Exit(code);
}

void end_hanging_job(const Watchdog::Missed& missed, const World* world) {
  constexpr int code = static_cast<int>(ExitCode::deadline_missed);
  std::string text = "a deadline was missed (machine.deadline_seconds, first_deadline_seconds): ";
  if (missed.alone || !world) {
    const int rank = world ? world->rank() : launched_rank();
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    constexpr int launcher_ends_ranks = 2000;  // without MPI's help
    wait_for_turn(rank, launcher_ends_ranks);
    text += "rank " + std::to_string(rank) + " on " + host + ": " + missed.doing;
  } else {
    text += ranks_report(missed.ranks, *world);
  }
  print_message("error", 0, text);
  LastAct::perform(std::make_exception_ptr(Error(text, ExitCode::deadline_missed)), std::chrono::seconds(5));
  expect_end();
  if (world) world->abort(code);
  std::_Exit(code);
}

}  // namespace forge
