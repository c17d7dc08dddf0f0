#include "config/lock_text.hpp"

#include "core/to_size.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <random>
#include <sstream>

namespace forge {

namespace {

constexpr const char* none = "-";

// A word, or "-".
std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text && *text && !std::strpbrk(text, " \t\n") ? text : none;
}

std::int64_t restart_of_this_job() {
  const char* text = std::getenv("SLURM_RESTART_COUNT");
  return text ? std::atoll(text) : 0;
}

// Another one after each start of the node; nodes may share a name.
std::string this_boot() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  return in >> id ? id : none;
}

}  // namespace

std::string this_process() {
  char node[256] = "", since[64] = "";
  ::gethostname(node, sizeof node - 1);
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", ::gmtime_r(&now, &utc));
  const std::string job = variable("SLURM_JOB_ID");
  return std::string(node) + ", process " + std::to_string(::getpid()) + ", since " + since +
         (job == none ? "" : ", Slurm job " + job);
}

std::string draw_nonce() {
  std::random_device device;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%08x%08x", device(), device());
  return digits;
}

bool is_nonce(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

LockText read_lock_text(const std::string& file) {
  LockText t;
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return t;
  char bytes[1024];
  const ssize_t n = ::pread(descriptor, bytes, sizeof bytes, 0);
  ::close(descriptor);
  if (n <= 0) return t;
  t.text.assign(bytes, to_size(n));
  std::istringstream in(t.text);
  std::getline(in, t.who);
  t.who.resize(std::min<std::size_t>(t.who.size(), 400));
  std::replace_if(
      t.who.begin(), t.who.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  in >> t.nonce >> t.boot >> t.job >> t.restart;
  if (in.fail() || !is_nonce(t.nonce)) return {t.text, t.who, "", "", none, 0};
  return t;
}

std::string lock_text(const std::string& who, const std::string& nonce, std::uint64_t beats) {
  char number[32];  // of one width: a text takes the place of the one before without a moment between them
  std::snprintf(number, sizeof number, "%020llu", static_cast<unsigned long long>(beats));
  return who + "\n" + nonce + " " + this_boot() + " " + variable("SLURM_JOB_ID") + " " +
         std::to_string(restart_of_this_job()) + " " + number + "\n";
}

bool is_of_this_node(const LockText& holder) {
  return !holder.nonce.empty() && holder.boot != none && holder.boot == this_boot();
}

bool is_earlier_start(const LockText& holder) {
  return holder.job != none && !holder.job.empty() && holder.job == variable("SLURM_JOB_ID") &&
         holder.restart < restart_of_this_job();
}

}  // namespace forge
