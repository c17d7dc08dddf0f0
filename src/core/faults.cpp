#include "core/faults.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/parse.hpp"

namespace forge {

namespace {

struct Fault {
  std::string kind, place;  // place: empty, of a step
  std::int64_t rank = -1, step = -1;
  double argument = 0;
};

// The kinds, and what their argument is: none, one that may be left out (then it is the number here), or one that must
// be there. Some happen in steps only, or at places only.
enum class Argument { none, optional, required };
enum class Where { any, step, place };
struct Kind {
  const char* name;
  Argument argument;
  double otherwise;
  Where where;
};
constexpr Kind kinds[] = {
    {"kill", Argument::none, 0, Where::any},           {"stop", Argument::none, 0, Where::any},
    {"hang", Argument::none, 0, Where::any},           {"slow", Argument::required, 0, Where::any},
    {"throw", Argument::optional, 1, Where::any},      {"nan", Argument::optional, 1, Where::step},
    {"flip", Argument::optional, -1, Where::step},     {"fail", Argument::required, 0, Where::step},
    {"upset", Argument::optional, 0, Where::step},     {"wrong", Argument::none, 0, Where::place},
    {"miscompute", Argument::optional, 1, Where::step}};
constexpr const char* places[] = {"init",       "start",    "mesh",   "gradients",  "save", "write",
                                  "validation", "sampling", "export", "evaluation", "end",  "finalize",
                                  "products",   "memory",   "sums",   "pairs",      "files"};

constexpr const char* writing = "write";  // each call on a file, of a rank's saves: slow alone

template <class N>
bool read_number(std::string_view text, N& number) {
  return reads_as(text, number) && number >= 0;
}

// None where the text isn't legal.
std::optional<Fault> fault_of(std::string_view text) {
  const auto parts = parts_of(text, ':');
  if (parts.size() < 3 || parts.size() > 4) return {};
  const auto kind = std::find_if(std::begin(kinds), std::end(kinds), [&](const Kind& k) { return parts[0] == k.name; });
  if (kind == std::end(kinds)) return {};
  Fault fault{std::string(parts[0]), "", -1, -1, kind->otherwise};
  if (!read_number(parts[1], fault.rank)) return {};
  if (!read_number(parts[2], fault.step)) {
    if (kind->where == Where::step || std::find(std::begin(places), std::end(places), parts[2]) == std::end(places))
      return {};
    if (parts[2] == writing && fault.kind != "slow") return {};
    fault.place = parts[2];
    fault.step = -1;
  } else if (kind->where == Where::place) {
    return {};
  }
  if (parts.size() == 3) return kind->argument == Argument::required ? std::nullopt : std::optional(fault);
  if (kind->argument == Argument::none || !read_number(parts[3], fault.argument)) return {};
  const double most_code = static_cast<double>(ExitCode::library_failed);
  if (fault.kind == "throw" && (fault.argument < 1 || fault.argument > most_code)) return {};
  return fault;
}

std::vector<Fault> environment_faults() {
  const char* text = setting_of_tests("FORGE_FAULT");
  if (!text) return {};
  std::vector<Fault> faults;
  for (const std::string_view part : parts_of(text, ',')) {
    const auto fault = fault_of(part);
    if (!fault) {
      std::string names;
      for (const char* place : places) names += (names.empty() ? "" : ", ") + std::string(place);
      throw BadInput("FORGE_FAULT=" + std::string(part) +
                     ": legal are kill:RANK:WHERE, stop:RANK:WHERE, hang:RANK:WHERE, slow:RANK:WHERE:SECONDS, "
                     "throw:RANK:WHERE[:CODE], nan:RANK:STEP[:STEPS], flip:RANK:STEP[:BIT], fail:RANK:STEP:CALL, "
                     "upset:RANK:STEP[:TENSOR], miscompute:RANK:STEP[:STEPS] and wrong:RANK:PLACE, "
                     "several with commas between; WHERE is a step or one of " +
                     names);
    }
    faults.push_back(*fault);
  }
  return faults;
}

void sleep(double seconds, const std::function<bool()>& stops) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end && !(stops && stops()))
    std::this_thread::sleep_for(
        std::min<std::chrono::duration<double>>(end - Clock::now(), std::chrono::milliseconds(50)));
}

void happen(const Fault& fault, const std::function<bool()>& stops = {}) {
  if (fault.kind == "kill") raise(SIGKILL);
  if (fault.kind == "stop") raise(SIGSTOP);
  if (fault.kind == "slow") sleep(fault.argument, stops);
  for (volatile std::int64_t turns = 0; fault.kind == "hang";) turns = turns + 1;
  if (fault.kind != "throw") return;
  const std::string text = "fails on purpose (FORGE_FAULT)";
  const auto code = static_cast<ExitCode>(fault.argument);
  if (code == ExitCode::io_failed) throw IoFailed(text);
  throw Error(text, code);
}

// Whether a fault that lasts for its argument's number of steps holds in this one.
bool holds_in(std::string_view kind, int rank, std::int64_t step) {
  const std::vector<Fault> faults = environment_faults();
  return std::any_of(faults.begin(), faults.end(), [&](const Fault& f) {
    return f.kind == kind && f.rank == rank && step >= f.step && static_cast<double>(step - f.step) < f.argument;
  });
}

// Calls until the one that fails, 0: none does; seconds that each takes. Of the thread that saves: ranks may be
// threads, and each may save behind its steps.
thread_local std::int64_t calls_left = 0;
thread_local double call_seconds = 0;

}  // namespace

const char* setting_of_tests(const char* variable) {
  return std::getenv(variable);
}

void inject_fault(int rank, std::int64_t step) {
  for (const Fault& fault : environment_faults())
    if (fault.rank == rank && fault.step == step) happen(fault);
}

void inject_fault(int rank, const char* place, const std::function<bool()>& stops) {
  for (const Fault& fault : environment_faults())
    if (fault.rank == rank && fault.place == place) happen(fault, stops);
}

bool nan_fault(int rank, std::int64_t step) {
  return holds_in("nan", rank, step);
}

bool miscompute_fault(int rank, std::int64_t step) {
  return holds_in("miscompute", rank, step);
}

bool wrong_fault(int rank, const char* place) {
  const std::vector<Fault> faults = environment_faults();
  return std::any_of(faults.begin(), faults.end(),
                     [&](const Fault& f) { return f.kind == "wrong" && f.rank == rank && f.place == place; });
}

std::int64_t upset_fault(int rank, std::int64_t step) {
  for (const Fault& fault : environment_faults())
    if (fault.kind == "upset" && rank == fault.rank && step == fault.step)
      return static_cast<std::int64_t>(fault.argument);
  return -1;
}

SaveFaults::SaveFaults(int rank, std::int64_t step) {
  calls_left = 0;
  call_seconds = 0;
  for (const Fault& fault : environment_faults()) {
    if (fault.rank != rank) continue;
    if (fault.kind == "slow" && fault.place == writing) call_seconds = fault.argument;
    if (fault.step != step) continue;
    if (fault.kind == "fail") calls_left = static_cast<std::int64_t>(fault.argument);
    if (fault.kind == "flip") {
      flips_ = true;
      bit_ = fault.argument;
    }
  }
  inject_fault(rank, "save");
}

SaveFaults::~SaveFaults() {
  calls_left = 0;
  call_seconds = 0;
}

void SaveFaults::shard_written(const std::string& file, std::uint64_t tensor) const {
  if (!flips_) return;
  const std::uint64_t bits = std::filesystem::file_size(file) * 8;
  const std::uint64_t bit = bit_ < 0 ? 8 * tensor : static_cast<std::uint64_t>(bit_) % bits;
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  char byte = 0;
  const auto at = static_cast<std::streamoff>(bit / 8);
  stream.seekg(at).get(byte);
  stream.seekp(at).put(static_cast<char>(byte ^ (1 << (bit % 8))));
  if (!stream.flush()) throw IoFailed("FORGE_FAULT=flip: cannot change " + file);
}

void io_call(const char* call, const std::string& file) {
  if (call_seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(call_seconds));
  if (calls_left > 0 && --calls_left == 0)
    throw IoFailed(std::string(call) + " " + file + ": fails on purpose (FORGE_FAULT)");
}

}  // namespace forge
