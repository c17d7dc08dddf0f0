#include "train/batch_job.hpp"

#include <cstdlib>
#include <filesystem>

#include "config/text.hpp"
#include "core/error.hpp"

namespace forge {

namespace {

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

}  // namespace

BatchJob batch_job() {
  const std::string array = variable("SLURM_ARRAY_JOB_ID"), cluster = variable("SLURM_CLUSTER_NAME");
  const std::string id = array.empty() ? variable("SLURM_JOB_ID") : array + "_" + variable("SLURM_ARRAY_TASK_ID");
  if (id.empty()) return {};
  return {cluster.empty() ? id : cluster + "." + id, std::atoi(variable("SLURM_RESTART_COUNT").c_str()) > 0};
}

std::string write_job_file(const std::string& checkpoint_directory) {
  const std::string file = variable("FORGE_JOB_FILE");
  if (file.empty()) return "";
  try {
    const std::string text = std::filesystem::absolute(checkpoint_directory).string() + "\n";
    write_text_file(file, text);
    return "";
  } catch (const IoFailed& error) {
    return std::string("FORGE_JOB_FILE: ") + error.what();
  }
}

}  // namespace forge
