#include "train/job_record.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/to_size.hpp"
#include "train/job_report.hpp"

namespace forge {

namespace {

constexpr std::size_t most_hosts = 4;
constexpr std::size_t most_command = 2000;  // bytes of a log's line

// PBS and LSF have no other name for it.
void find_batch_job(JobRecord& record) {
  struct System {
    const char *name, *variable;
  };
  constexpr std::array<System, 3> systems{{{"Slurm", "SLURM_JOB_ID"}, {"PBS", "PBS_JOBID"}, {"LSF", "LSB_JOBID"}}};
  for (const System& system : systems) {
    const char* const number = std::getenv(system.variable);
    if (!number || !*number) continue;
    record.batch_system = system.name;
    record.job = number;
    return;
  }
}

std::vector<std::string> arguments_of_process() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::string host_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_-./:=,+@%").find(c) != std::string::npos;
}

}  // namespace

JobRecord job_record(const std::string& deck, const World& world) {
  JobRecord record;
  record.started = std::time(nullptr);
  record.arguments = arguments_of_process();
  std::error_code error;
  record.directory = std::filesystem::current_path(error).string();
  record.deck = deck;
  find_batch_job(record);
  record.nodes = world.nodes();
  record.hosts = world.first_nodes(most_hosts);
  if (record.hosts.empty()) record.hosts = {host_name()};
  return record;
}

std::string iso_time(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  char date[32] = "", zone[8] = "";
  if (!localtime_r(&time, &local)) return "@" + std::to_string(seconds);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &local);
  std::strftime(zone, sizeof zone, "%z", &local);
  std::string text = std::string(date) + zone;
  if (text.size() > 2) text.insert(text.size() - 2, ":");
  return text;
}

std::string command_text(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) {
    const bool plain = !argument.empty() && std::all_of(argument.begin(), argument.end(), is_plain);
    std::string word;
    for (const char c : argument)
      word += c == '\'' ? "'\\''" : std::string(1, static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
    text += (text.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  }
  return text.size() > most_command ? text.substr(0, most_command) + " …" : text;
}

std::string record_lines(const JobRecord& r) {
  std::string where = " on ";
  for (std::size_t i = 0; i < r.hosts.size(); ++i) where += (i > 0 ? ", " : "") + r.hosts[i];
  if (to_size(r.nodes) > r.hosts.size()) where += ", … (" + std::to_string(r.nodes) + " nodes)";
  if (!r.job.empty()) where += "; " + r.batch_system + " job " + r.job;
  return titled_line("started", iso_time(r.started) + where) + titled_line("command", command_text(r.arguments));
}

}  // namespace forge
