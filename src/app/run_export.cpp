#include <cstdio>
#include <filesystem>

#include "app/verbs.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/export_hf.hpp"
#include "checkpoint/torch_optimizer.hpp"
#include "config/output_lock.hpp"
#include "core/file_errors.hpp"
#include "hf/tensor_directory.hpp"

namespace forge {

void run_export(const CommandLine& line) {
  std::string checkpoint = line.inputs.front();
  if (!reading([&] { return std::filesystem::exists(checkpoint + "/" + manifest_name); })) {
    const auto steps = committed_steps(checkpoint);
    if (steps.empty())
      throw BadCheckpoint(checkpoint + " is neither a checkpoint (it has no " + manifest_name +
                          ") nor a directory of checkpoints");
    checkpoint = steps.front().path;
  }
  const OutputDirectoryLock lock(line.output);
  const std::uint64_t most_file_bytes = static_cast<std::uint64_t>(line.most_file_mib) << 20;
  const ExportType type = line.type == "fp8"    ? ExportType::fp8
                          : line.type == "bf16" ? ExportType::bf16
                                                : ExportType::fp32;
  if (line.optimizer) export_optimizer(checkpoint, line.output, most_file_bytes);
  if (!export_hf(checkpoint, line.output, type, most_file_bytes))
    std::fprintf(stderr, "forge: the model's tokenizer is not where the checkpoint's deck has it, and not in %s\n",
                 line.output.c_str());
  // An earlier optimizer's state would be read beside this model.
  if (!line.optimizer) remove_tensor_files(line.output, "optimizer");
  std::printf("%s written to %s\n", checkpoint.c_str(), line.output.c_str());
}

}  // namespace forge
