#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <filesystem>

#include "app/checks.hpp"
#include "config/file_handle.hpp"
#include "config/output_file.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/faults.hpp"

namespace forge {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t file_bytes = 32u << 20;

std::string file_of(const std::string& directory, int node) {
  return directory + "/node_" + std::to_string(node);
}

std::vector<std::uint64_t> contents_of(int node) {
  std::vector<std::uint64_t> words(file_bytes / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 1000003 + static_cast<std::uint64_t>(node);
  return words;
}

// The failure's text, "" where there was none.
template <class Work>
std::string failure_of_work(const Work& work) {
  try {
    work();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Whether this process has made the name.
bool made_alone(const std::string& path) {
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0) ::close(file);
  return file >= 0;
}

}  // namespace

CheckedDirectory::CheckedDirectory(Checks& checks, const std::string& directory) : checks_(checks) {
  std::string name, why;
  if (checks.world().rank() == 0) {
    name = directory + "/check." + draw_nonce();
    why = failure_of_work([&] {
      std::error_code failed;
      if (!fs::create_directories(name, failed)) throw IoFailed("cannot make " + name + ": " + failed.message());
    });
  }
  checks.ranks().broadcast_host(name, 0);
  checks.ranks().broadcast_host(why, 0);
  if (!why.empty()) {
    checks.add("directory", Verdict::wrong, why);
    return;
  }
  path_ = name;
  left_over_.emplace(name);
  std::error_code unknown;
  std::int64_t sees = fs::is_directory(name, unknown) ? 1 : 0;
  checks.find("directory", Verdict::wrong, sees ? "" : directory + " isn't the first rank's",
              directory + ", seen by all ranks", true);
  if (!sees) path_.clear();
  checks.ranks().min_host({&sees, 1});
  shared_ = sees == 1;
}

CheckedDirectory::~CheckedDirectory() {
  // A rank that fails may end the others before they come here.
  if (path_.empty() || (checks_.world().rank() != 0 && std::uncaught_exceptions() == 0)) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void CheckedDirectory::check() {
  const World& world = checks_.world();
  const bool leads = world.local_rank() == 0;
  const int node = world.node(world.rank()), next = (node + 1) % world.nodes();
  double seconds = 0;
  std::string failed;
  if (leads) {
    const std::vector<std::uint64_t> words = contents_of(node);
    const auto start = Clock::now();
    inject_fault(world.rank(), "files");
    failed = failure_of_work([&] {
      OutputFile file(file_of(path_, node));
      file.file().write_at(0, words.data(), file_bytes);
      file.commit();
    });
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  checks_.compare(
      "files, time", failed.empty() ? seconds : 0,
      [](double median) {
        return format_bytes(static_cast<std::size_t>(static_cast<double>(file_bytes) / median)) +
               "/s written and forced to the disk by each node";
      },
      true);
  checks_.ranks().barrier();
  if (leads && failed.empty())
    failed = failure_of_work([&] {
      std::vector<std::uint64_t> words(file_bytes / sizeof(std::uint64_t));
      FileHandle::open_to_read(file_of(path_, next), "the next node's file").read_at(0, words.data(), file_bytes);
      if (wrong_fault(world.rank(), "files")) words[0] ^= 1;
      if (words != contents_of(next))
        throw IoFailed(file_of(path_, next) + " is read otherwise than node " + std::to_string(next) +
                       " has written it");
    });
  checks_.find("files, contents", Verdict::wrong, failed, "each node reads the next one's file as it was written",
               true);
  // One of the nodes makes a name; all see its new name.
  std::int64_t made = leads && made_alone(path_ + "/once") ? 1 : 0;
  std::int64_t makers[] = {made};
  checks_.ranks().sum_host(makers);
  checks_.add("files, one maker", makers[0] == 1 ? Verdict::ok : Verdict::wrong,
              makers[0] == 1
                  ? "a name is made by one process alone (O_EXCL)"
                  : std::to_string(makers[0]) + " processes have made the same name, where one must (O_EXCL)");
  if (world.rank() == 0) failed = failure_of_work([&] { fs::rename(path_ + "/once", path_ + "/renamed"); });
  checks_.ranks().barrier();
  std::error_code unknown;
  const bool sees = !leads || fs::exists(path_ + "/renamed", unknown);
  checks_.find("files, names", Verdict::wrong, sees ? "" : "doesn't see a file that the first rank has renamed",
               "a renamed file is seen by all nodes at once", true);
}

}  // namespace forge
