#include <cstdio>

#include "app/verbs.hpp"
#include "checkpoint/export_hf.hpp"
#include "config/output_lock.hpp"
#include "hf/tensor_directory.hpp"
#include "train/restart.hpp"

namespace forge {

void run_export(const CommandLine& line) {
  const std::string checkpoint = checkpoints_at(line.inputs.front(), "forge export: ").front();
  const OutputDirectoryLock lock(line.output);
  const std::uint64_t most_file_bytes = static_cast<std::uint64_t>(line.most_file_mib) << 20;
  const ExportNotes notes =
      export_hf(checkpoint, line.output, export_type(line.type), most_file_bytes, line.optimizer, line.merge);
  if (!notes.base.empty())
    std::fprintf(stderr, "forge: model.hf %s is not there: the merged weights are those that the run has rounded\n",
                 notes.base.c_str());
  if (!notes.tokenizer)
    std::fprintf(stderr, "forge: the model's tokenizer is not where the checkpoint's deck has it, and not in %s\n",
                 line.output.c_str());
  if (!notes.peft.empty())
    std::fprintf(stderr, "forge: %s; adapter.load reads %s, and --merge leaves no adapters\n", notes.peft.c_str(),
                 line.output.c_str());
  // An earlier optimizer's state would be read beside this model.
  if (!line.optimizer) remove_tensor_files(line.output, "optimizer");
  std::printf("%s written to %s\n", checkpoint.c_str(), line.output.c_str());
}

}  // namespace forge
