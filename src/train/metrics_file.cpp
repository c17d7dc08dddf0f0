#include "train/metrics_file.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "config/output_file.hpp"
#include "config/text.hpp"
#include "core/file_errors.hpp"
#include "core/to_size.hpp"
#include "hf/json_input.hpp"

namespace forge {

namespace {

constexpr std::size_t most_at_once = std::size_t{1} << 20;
constexpr std::size_t most_line = std::size_t{64} << 20;  // a longer one is none of forge's

bool is_json(const std::string& line) {
  try {
    parse_json(line, "metrics", {});
    return true;
  } catch (const BadInput&) {
    return false;
  }
}

// The step of a line of metrics.jsonl, −1 where it is no whole line.
std::int64_t step_of_line(const std::string& line) {
  const std::string key = "\"step\": ";
  const std::size_t at = line.find(key);
  std::int64_t step = -1;
  if (at != std::string::npos) std::from_chars(line.data() + at + key.size(), line.data() + line.size(), step);
  return step >= 0 && line.back() == '}' && is_json(line) ? step : -1;
}

// Calls f(line, offset) for each line that has an end.
template <class F>
void for_each_line(const FileHandle& file, F f) {
  const std::uint64_t size = file.size();
  std::string line, block;
  std::uint64_t begin = 0;
  for (std::uint64_t at = 0; at < size; at += block.size()) {
    block.resize(to_size(std::min<std::uint64_t>(size - at, most_at_once)));
    file.read_at(at, block.data(), block.size());
    for (std::size_t i = 0; i < block.size();) {
      const std::size_t end = std::min(block.find('\n', i), block.size());
      if (line.size() < most_line) line.append(block, i, end - i);
      if (end == block.size()) break;
      f(line, begin);
      line.clear();
      i = end + 1;
      begin = at + i;
    }
  }
}

struct KeptPart {
  std::uint64_t begin = 0, end = 0;
};

// What stays, and what is missing there.
struct KeptLines {
  std::vector<KeptPart> parts;
  std::int64_t bad = 0, last = 0;  // lines between the kept ones; the last kept step
  std::vector<std::string> holes;  // steps without a line: "3", "6 to 8"
};

void add_hole(KeptLines& kept, std::int64_t first, std::int64_t last) {
  constexpr std::size_t most = 6;
  if (first > last || kept.holes.size() > most) return;
  kept.holes.push_back(kept.holes.size() == most ? "…"
                       : first == last           ? std::to_string(first)
                                                 : std::to_string(first) + " to " + std::to_string(last));
}

KeptLines kept_of(const FileHandle& file, std::int64_t last_step) {
  KeptLines kept;
  std::int64_t bad = 0;
  for_each_line(file, [&](const std::string& line, std::uint64_t begin) {
    const std::int64_t step = step_of_line(line);
    if (step < 0) ++bad;
    if (step < 0 || step > last_step) return;
    kept.bad += bad;
    bad = 0;
    if (!kept.parts.empty()) add_hole(kept, kept.last + 1, step - 1);
    kept.last = step;
    const std::uint64_t end = begin + line.size() + 1;
    if (!kept.parts.empty() && kept.parts.back().end == begin)
      kept.parts.back().end = end;
    else
      kept.parts.push_back({begin, end});
  });
  return kept;
}

// Only the first part, of a file that begins with it.
bool is_a_beginning(const KeptLines& kept) {
  return kept.parts.empty() || (kept.parts.size() == 1 && kept.parts.front().begin == 0);
}

void copy_parts(const FileHandle& from, const KeptLines& kept, const std::string& path, const std::string& temporary) {
  OutputFile to(path, temporary);
  std::vector<char> block;
  std::uint64_t written = 0;
  for (const KeptPart& part : kept.parts)
    for (std::uint64_t at = part.begin; at < part.end; at += block.size()) {
      block.resize(to_size(std::min<std::uint64_t>(part.end - at, most_at_once)));
      from.read_at(at, block.data(), block.size());
      to.file().write_at(written, block.data(), block.size());
      written += block.size();
    }
  to.commit();
}

}  // namespace

std::vector<std::string> repair_metrics(const std::string& path, const std::string& temporary, std::int64_t step,
                                        bool own) {
  namespace fs = std::filesystem;
  KeptLines kept;
  if (reading([&] { return fs::exists(fs::symlink_status(path)); })) {
    const FileHandle file = FileHandle::open_to_read(path, "metrics");
    kept = kept_of(file, step);
    if (is_a_beginning(kept))
      FileHandle::open_to_append(path).resize(kept.parts.empty() ? 0 : kept.parts.front().end);
    else
      copy_parts(file, kept, path, temporary);
  }
  if (own || !kept.parts.empty()) add_hole(kept, kept.last + 1, step);
  std::vector<std::string> notes;
  if (kept.bad > 0)
    notes.push_back(path + ": lines that were torn or blank, and are left out: " + std::to_string(kept.bad));
  if (!kept.holes.empty())
    notes.push_back(path + " has no lines of these steps, which the checkpoint has done: " + joined(kept.holes));
  return notes;
}

}  // namespace forge
