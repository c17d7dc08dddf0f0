#include "train/tracker.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "config/shared_files.hpp"
#include "core/file_errors.hpp"

namespace forge {

namespace {

namespace fs = std::filesystem;

std::string cause(int error) {
  return std::generic_category().message(error);
}

// "": there is none.
std::string script_file() {
  for (const std::string& folder : shared_folders("jobscripts"))
    if (const fs::path file = fs::path(folder) / "track.py"; is_file(file)) return file.string();
  return "";
}

std::string last_line(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string last;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) last = line;
  return last;
}

// How a new process begins: with a pipe as standard input, what it says in a file, in a session of its own, where no
// signal of the job's terminal reaches it, and with no signal blocked or ignored.
class SpawnOptions {
 public:
  SpawnOptions(int input, const std::string& output) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0644);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnOptions() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
  }
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

}  // namespace

Tracker::Tracker(TrackTo to, std::string directory) : directory_(std::move(directory)) {
  if (const std::string why = start(to); !why.empty())
    news_ = "output.track: " + why + "; the job goes on, and jobscripts/track.py " + directory_ +
            " --to wandb sends all of it later";
}

std::string Tracker::start(TrackTo to) {
  std::string script = script_file();
  if (script.empty())
    return "there is no jobscripts/track.py in the working directory, FORGE_ROOT, the source tree or the installation";
  std::array<int, 2> ends = {-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "no pipe: " + cause(errno);
  pipe_ = ends[1];
  std::string words[] = {"python3", script, directory_, "--to", "wandb", "--follow", "--job", "--online"};
  std::array<char*, std::size(words) + 1> arguments = {};
  const std::size_t count = std::size(words) - (to == TrackTo::wandb_online ? 0 : 1);
  for (std::size_t i = 0; i < count; ++i) arguments[i] = words[i].data();
  const SpawnOptions options(ends[0], directory_ + "/track.log");
  const int error = posix_spawnp(&process_, "python3", &options.files, &options.attributes, arguments.data(), environ);
  close(ends[0]);
  if (error == 0) return "";
  process_ = 0;
  return "python3 " + script + " can't be started: " + cause(error);
}

Tracker::~Tracker() {
  finish(10);
  if (pipe_ >= 0) close(pipe_);
}

bool Tracker::ended() {
  if (process_ == 0) return true;
  int status = 0;
  const pid_t found = waitpid(process_, &status, WNOHANG);
  if (found == 0 || (found < 0 && errno == EINTR)) return false;
  process_ = 0;
  if (found > 0 && status == 0) return true;
  const std::string log = directory_ + "/track.log", said = last_line(log);
  news_ = "output.track: track.py has ended" +
          (found > 0 && WIFEXITED(status) ? " with code " + std::to_string(WEXITSTATUS(status)) : std::string()) +
          (said.empty() ? "" : ": " + said) + " (" + log + "); the job goes on, and jobscripts/track.py " + directory_ +
          " --to wandb sends the rest";
  return true;
}

void Tracker::finish(double seconds, Heartbeat* heartbeat) {
  using Clock = std::chrono::steady_clock;
  if (ended()) return;
  close(std::exchange(pipe_, -1));
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (!ended()) {
    if (Clock::now() > end) {
      news_ = "output.track: track.py still sends, and goes on without the job";
      process_ = 0;
      return;
    }
    if (heartbeat) heartbeat->beat();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string Tracker::take_news() {
  ended();
  return std::exchange(news_, "");
}

}  // namespace forge
