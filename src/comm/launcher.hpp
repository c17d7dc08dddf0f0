#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace forge {

// The rank that a launcher gives this process, as its environment says before MPI starts; 0 without a launcher.
int launched_rank();

// Empty, or a sentence that says which launcher started several processes, and how MPI comes to know of them: for a
// world of one rank. `mpi` is the MPI's name and version.
std::string other_processes_of_launcher(const std::string& mpi);

// A process without a launcher stays alone while MPI starts: it starts no daemon, and shares no directory with other
// jobs, whose end could take it away. The environment is as before when this ends, and the files are removed: MPI needs
// neither any longer.
class LoneStart {
 public:
  explicit LoneStart(const std::string& mpi);
  ~LoneStart();
  LoneStart(const LoneStart&) = delete;
  LoneStart& operator=(const LoneStart&) = delete;

 private:
  void change(const char* name, const std::optional<std::string>& value);

  std::string directory_;  // empty: none of its own
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

}  // namespace forge
