#include "config/output_lock.hpp"

#include <filesystem>

#include "config/output_file.hpp"
#include "config/path_hint.hpp"
#include "core/file_errors.hpp"

namespace forge {

void check_output(const std::vector<std::string>& inputs, const std::string& output) {
  if (output.empty() || output.back() == '/')
    throw BadInput("the output '" + output + "' is no name of a file; legal: a file's name");
  if (const std::string problem = unexpanded(output); !problem.empty())
    throw BadInput("the output '" + output + "': " + problem);
  std::error_code ignored;
  if (std::filesystem::is_directory(output, ignored))
    throw BadInput("the output " + output + " is a directory; legal: a file's name");
  // A finished output takes the place of what has its name.
  const auto kind = reading([&] { return std::filesystem::symlink_status(output).type(); });
  if (kind == std::filesystem::file_type::symlink)
    throw BadInput("the output " + output +
                   " is a symbolic link, which would be replaced; legal: the name it leads to");
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular)
    throw BadInput("the output " + output + " is a device or a pipe, which would be replaced; legal: a file's name");
  // What is written on the way, and what formats have beside their tokens.
  std::vector<std::string> beside{std::filesystem::path(output).replace_extension(".idx")};
  for (const char* end : {".partial", ".progress", ".progress.new", ".index", ".metadata"})
    beside.push_back(output + end);
  for (const std::string& input : inputs) {
    if (std::filesystem::equivalent(input, output, ignored)) throw BadInput(input + ": is the output file too");
    for (const std::string& name : beside)
      if (std::filesystem::equivalent(input, name, ignored))
        throw BadInput(input + ": " + name + " is written with " + output + "; choose another --output");
  }
}

namespace {

LockedDirectory place_of(const std::string& output, const std::string& key) {
  const std::filesystem::path file = sibling_name(output, ".", ".lock");
  const std::string directory = file.parent_path();
  return {key, directory.empty() ? "." : directory, file.filename(), output};
}

}  // namespace

// Who finds another writer is told at once: 0.3 s, since that one may be ending.
OutputLock::OutputLock(const LockedDirectory& place)
    : lock_(place, {.wait = 0.3, .same_job = 0.3}), file_(lock_.file()) {}

OutputLock::OutputLock(const std::string& output, const std::string& key) : OutputLock(place_of(output, key)) {
  if (lock_.certain()) remove_partial_files(output);
}

}  // namespace forge
