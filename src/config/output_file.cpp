#include "config/output_file.hpp"

#include <unistd.h>

#include <filesystem>
#include <random>

#include "core/bytes.hpp"
#include "core/random.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr const char* partial = ".partial";

std::pair<std::string, std::string> split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::pair{std::string(), path}
                                    : std::pair{path.substr(0, slash + 1), path.substr(slash + 1)};
}

}  // namespace

std::string draw_nonce() {
  std::random_device device;
  return formatted("%08x%08x", device(), device());
}

bool is_nonce(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool has_nonce(const std::string& name, const std::string& begin, const std::string& end) {
  const std::size_t around = begin.size() + end.size();
  return name.size() > around && name.starts_with(begin) && name.ends_with(end) &&
         is_nonce(name.substr(begin.size(), name.size() - around));
}

std::string sibling_name(const std::string& path, const std::string& begin, const std::string& end) {
  constexpr std::size_t most = 255, kept = 100;
  const auto [directory, name] = split(path);
  const std::string all = begin + name + end;
  if (all.size() <= most) return directory + all;
  return directory + begin + name.substr(0, kept) + "." +
         formatted("%016llx", static_cast<unsigned long long>(hash_of(name))) + end;
}

OutputFile::OutputFile(const std::string& path)
    : OutputFile(path, sibling_name(path, "", "." + draw_nonce() + partial)) {}

OutputFile::OutputFile(const std::string& path, const std::string& temporary) : path_(path), temporary_(temporary) {
  ::unlink(temporary_.c_str());
  file_.emplace(FileHandle::open_to_write(temporary_));
  left_over_ = std::make_unique<LeftOver>(temporary_);
}

OutputFile::~OutputFile() {
  if (left_over_) ::unlink(temporary_.c_str());
}

void OutputFile::commit() {
  file_->commit_as(path_);
  left_over_.reset();
}

void remove_partial_files(const std::string& path) {
  const auto [directory, unused] = split(path);
  const std::string begin = split(sibling_name(path, "", std::string(17, '.') + partial)).second;
  const std::string name = begin.substr(0, begin.size() - 16 - std::string(partial).size());  // "NAME."
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory.empty() ? "." : directory, ignored))
    if (has_nonce(entry.path().filename(), name, partial)) ::unlink(entry.path().c_str());
}

}  // namespace forge
