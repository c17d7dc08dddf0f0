#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace forge {

// Faults on purpose, in builds with tests: FORGE_FAULT=kind:rank:where[:argument], several with commas between, in the
// environment (docs/developer.md). `where` is a step, or the name of a place. Builds without tests know none of it.
// Each function throws BadInput where the text is none of the legal ones.

// kill, stop, hang, slow, throw: this rank's faults at the start of a step, if any.
void inject_fault(int rank, std::int64_t step);
// kill, stop, hang, slow, throw: this rank's faults at a place: "start", "sampling", …. slow ends early where `stops`,
// if any, says so: it stands for work that is broken off.
void inject_fault(int rank, const char* place, const std::function<bool()>& stops = {});

// nan: whether a gradient of this rank is NaN in this step.
bool nan_fault(int rank, std::int64_t step);

// miscompute: whether a block's output of this rank loses a bit in each forward pass of this step.
bool miscompute_fault(int rank, std::int64_t step);

// wrong: whether a result of this rank is to be changed at a place.
bool wrong_fault(int rank, const char* place);

// upset: the number of the tensor that loses a bit in this rank's memory behind this step; negative: none.
std::int64_t upset_fault(int rank, std::int64_t step);

// The place "save", and fail, flip, slow at the place "write": a save of one rank and step, for as long as this object
// lives, on the thread that made it.
class SaveFaults {
 public:
  SaveFaults(int rank, std::int64_t step);
  ~SaveFaults();
  SaveFaults(const SaveFaults&) = delete;
  SaveFaults& operator=(const SaveFaults&) = delete;

  // The rank's shard is on the disk, and its hashes are known: flip changes a bit of it. `tensor`: where in the file
  // one begins.
  void shard_written(const std::string& file, std::uint64_t tensor) const;

 private:
  [[maybe_unused]] bool flips_ = false;  // builds without faults read neither
  [[maybe_unused]] double bit_ = -1;     // of the file, negative: the first of a tensor
};

// A variable of the environment that only builds with tests read; nullptr where it isn't set, and in other builds.
const char* setting_of_tests(const char* variable);

// A call on a file is about to be made, or has just been made: fail throws IoFailed where it is the one that shall
// fail.
void io_call(const char* call, const std::string& file);

}  // namespace forge
