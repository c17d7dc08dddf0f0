#include <cstdio>

#include "app/verbs.hpp"
#include "config/write.hpp"
#include "kernels/attention_cudnn.hpp"
#include "kernels/grouped_cutlass.hpp"
#include "train/report.hpp"

namespace forge {

void run_help(const CommandLine& line) {
  std::string text;
  if (line.markdown)
    text = inputs_markdown();
  else if (line.inputs.empty())
    text = usage() + "\n" + help_text();
  else
    text = help_text(line.inputs.front());
  std::fputs(text.c_str(), stdout);
}

void run_version() {
  std::printf("%s%s%s\n", build_description().c_str(), cudnn_built_in() ? ", cuDNN" : "",
              cutlass_built_in() ? ", CUTLASS" : "");
}

}  // namespace forge
