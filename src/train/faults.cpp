#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include "core/error.hpp"
#include "train/faults.hpp"

namespace forge {

void inject_fault(int rank, std::int64_t step) {
  const char* text = std::getenv("FORGE_FAULT");
  if (!text) return;
  std::istringstream in(text);
  std::string kind;
  std::int64_t at_rank = -1, at_step = -1;
  double seconds = 0;
  char colon = 0;
  std::getline(in, kind, ':');
  in >> at_rank >> colon >> at_step;
  const bool legal =
      !in.fail() && colon == ':' && (kind == "kill" || kind == "stop" || kind == "hang" || kind == "slow");
  if (kind == "slow") in >> colon >> seconds;
  if (!legal || in.fail())
    throw BadInput(std::string("FORGE_FAULT=") + text +
                   ": legal are kill:RANK:STEP, stop:RANK:STEP, hang:RANK:STEP and slow:RANK:STEP:SECONDS");
  if (rank != at_rank || step != at_step) return;
  if (kind == "kill") raise(SIGKILL);
  if (kind == "stop") raise(SIGSTOP);
  if (kind == "slow") std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  for (volatile std::int64_t turns = 0; kind == "hang";) turns = turns + 1;
}

}  // namespace forge
