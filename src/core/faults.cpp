#include "core/faults.hpp"

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/error.hpp"

namespace forge {

namespace {

struct Fault {
  std::string kind;
  std::int64_t rank = -1, step = -1;
  double argument = 0;

  bool at(int r, std::int64_t s) const { return r == rank && s == step; }
};

// The kinds, and what their argument is: none, one that may be left out (then it is the number here), or one that must
// be there.
enum class Argument { none, optional, required };
struct Kind {
  const char* name;
  Argument argument;
  double otherwise;
};
constexpr Kind kinds[] = {{"kill", Argument::none, 0},    {"stop", Argument::none, 0},
                          {"hang", Argument::none, 0},    {"slow", Argument::required, 0},
                          {"nan", Argument::optional, 1}, {"flip", Argument::optional, -1},
                          {"fail", Argument::required, 0}};

// Whether the rest of the text is what this kind takes.
bool takes(const Kind& kind, std::istringstream& in, Fault& fault) {
  char colon = 0;
  fault.argument = kind.otherwise;
  if (in.eof() || (in >> colon).fail()) return kind.argument != Argument::required;
  if (kind.argument == Argument::none || colon != ':') return false;
  in >> fault.argument;
  return !in.fail() && in.eof() && fault.argument >= 0;
}

// None: a rank of −1.
Fault environment_fault() {
  const char* text = std::getenv("FORGE_FAULT");
  if (!text) return {};
  std::istringstream in(text);
  Fault fault;
  char colon = 0;
  std::getline(in, fault.kind, ':');
  in >> fault.rank >> colon >> fault.step;
  if (!in.fail() && colon == ':')
    for (const Kind& kind : kinds)
      if (fault.kind == kind.name && takes(kind, in, fault)) return fault;
  throw BadInput(std::string("FORGE_FAULT=") + text +
                 ": legal are kill:RANK:STEP, stop:RANK:STEP, hang:RANK:STEP, slow:RANK:STEP:SECONDS, "
                 "nan:RANK:STEP[:STEPS], flip:RANK:STEP[:BIT] and fail:RANK:STEP:CALL");
}

// Calls until the one that fails, 0: none does. Of the thread that saves: ranks may be threads, and each may save
// behind its steps.
thread_local std::int64_t calls_left = 0;

}  // namespace

void inject_fault(int rank, std::int64_t step) {
  const Fault fault = environment_fault();
  if (!fault.at(rank, step)) return;
  if (fault.kind == "kill") raise(SIGKILL);
  if (fault.kind == "stop") raise(SIGSTOP);
  if (fault.kind == "slow") std::this_thread::sleep_for(std::chrono::duration<double>(fault.argument));
  for (volatile std::int64_t turns = 0; fault.kind == "hang";) turns = turns + 1;
}

bool nan_fault(int rank, std::int64_t step) {
  const Fault fault = environment_fault();
  return fault.kind == "nan" && rank == fault.rank && step >= fault.step &&
         static_cast<double>(step - fault.step) < fault.argument;
}

SaveFaults::SaveFaults(int rank, std::int64_t step) {
  const Fault fault = environment_fault();
  calls_left = 0;
  if (!fault.at(rank, step)) return;
  if (fault.kind == "fail") calls_left = static_cast<std::int64_t>(fault.argument);
  flips_ = fault.kind == "flip";
  bit_ = fault.argument;
}

SaveFaults::~SaveFaults() {
  calls_left = 0;
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
  if (calls_left > 0 && --calls_left == 0)
    throw IoFailed(std::string(call) + " " + file + ": fails on purpose (FORGE_FAULT)");
}

}  // namespace forge
