#include <algorithm>
#include <charconv>
#include <string_view>

#include "config/file_lines.hpp"
#include "report/reported_run.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

constexpr std::size_t most_text = std::size_t{64} << 10, most_samples = 20;  // bytes of a sample
constexpr std::size_t most_event = 400;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

// The whole number at the start of a text, −1 where there is none.
std::int64_t number_of(std::string_view text) {
  std::int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Of "saved step_00000199 and left" or "stopped at step 199: …" 199; −1 where a text names no step.
std::int64_t step_in(std::string_view text) {
  for (const std::string_view before : {"saved step_", "at step "})
    if (const std::size_t at = text.find(before); at != text.npos) return number_of(text.substr(at + before.size()));
  return -1;
}

// Reads log.txt as train/job_report and its neighbours write it. What it doesn't know it passes over.
class LogReader {
 public:
  explicit LogReader(ReportedRun& run) : run_(run) {}

  // The last stop may have come behind steps that have no line in the log.
  void end() {
    end_head();
    end_stop(run_.last_step);
  }
  void add(const std::string& line) {
    end_stop(0);
    const bool starts = line.starts_with("  started ") && before_.starts_with("forge ");
    if (starts && in_sample_) end_sample(before_);
    before_ = line;
    if (starts) return begin_job(line);
    if (in_sample_ && !line.starts_with("model written to ") && !line.starts_with("stopped: ")) return add_sample(line);
    in_sample_ = false;
    if (in_times_ && add_phase(line)) return;
    if (line == "time of rank 0:") return begin_times();
    if (line.starts_with("sample (temperature ")) return begin_sample();
    if (line.starts_with("memory of rank 0: ")) run_.memory_line = replace_ill_formed(line);
    if (!add_event(line)) find_step(line);
  }

 private:
  void begin_job(const std::string& line) {
    in_times_ = false;
    end_head();
    head_.push_back({"job", replace_ill_formed(trimmed(std::string_view(line).substr(10)).substr(0, most_event)), 0});
  }
  // A job's first lines stand in the log before the step from which it goes on.
  void end_head() {
    for (RunEvent& e : head_) {
      e.step = step_;
      run_.events.add(std::move(e));
    }
    head_.clear();
  }

  void begin_times() {
    in_times_ = true;
    run_.phases.clear();
  }
  // "  forward         94.13 s   31.2 %", and parts of it with two more spaces, which don't count a second time.
  bool add_phase(const std::string& line) {
    in_times_ = line.starts_with("  ");
    if (!in_times_ || line.starts_with("    ")) return in_times_;
    const std::string_view text = line;
    const std::size_t begin = text.find_first_of("0123456789", 14), end = text.find(" s", begin);
    if (begin == std::string_view::npos || end == std::string_view::npos) return in_times_ = false;
    double seconds = 0;
    std::from_chars(text.data() + begin, text.data() + end, seconds);
    if (const std::string name(trimmed(text.substr(2, 11))); name == "total")
      in_times_ = false;
    else
      run_.phases.emplace_back(name, seconds);
    return true;
  }

  void begin_sample() {
    in_sample_ = true;
    if (run_.samples.size() == most_samples) run_.samples.erase(run_.samples.begin());
    run_.samples.emplace_back();
  }
  // Up to what the log has behind it.
  void add_sample(const std::string& line) {
    std::string& text = run_.samples.back();
    if (text.size() + line.size() <= most_text) text += line + "\n";
  }
  // The line that ended it is in it.
  void end_sample(const std::string& line) {
    in_sample_ = false;
    std::string& text = run_.samples.back();
    if (text.ends_with("\n" + line + "\n")) text.resize(text.size() - line.size() - 1);
  }

  void event(const char* kind, std::string_view text, std::int64_t step = -1) {
    RunEvent e{kind, replace_ill_formed(text.substr(0, most_event)), step < 0 ? step_ : step};
    if (!head_.empty() && step < 0) return head_.push_back(std::move(e));
    run_.events.add(std::move(e));
  }

  void saved(std::string_view text, std::int64_t step) {
    event("save", text, step);
    step_ = std::max(step_, step);
  }
  // The event of a stop whose line names no step: of the last step that is known.
  void end_stop(std::int64_t last_step) {
    if (stop_.empty()) return;
    event("stop", stop_, std::max(step_, last_step));
    stop_.clear();
  }

  bool add_event(const std::string& line) {
    constexpr std::string_view space = "            ", save = "            saved step_", step = "step_";
    struct Beginning {
      std::string_view text;
      const char* kind;
      std::size_t said;  // where the text of the event begins
    };
    constexpr Beginning beginnings[] = {{"saving failed", "save failed", 0},
                                        {"warning: ", "warning", 9},
                                        {"  warning ", "warning", 10},
                                        {"  note ", "note", 7},
                                        {"            validation broken off", "stop", 0}};
    const std::string_view text = line;
    if (text.starts_with(save)) return saved(trimmed(text), number_of(text.substr(save.size()))), true;
    if (text.starts_with(space) && text.substr(space.size()).starts_with(step) &&
        text.find(" is being written ") != text.npos)
      return saved(trimmed(text), number_of(text.substr(space.size() + step.size()))), true;
    if (text.starts_with("stopped: ")) {
      if (const std::int64_t at = step_in(text); at >= 0) return event("stop", trimmed(text.substr(9)), at), true;
      stop_ = trimmed(text.substr(9));
      return true;
    }
    if (text.starts_with("restarted from ")) {
      if (const std::size_t at = text.find(", step "); at != text.npos) step_ = number_of(text.substr(at + 7));
      if (head_.empty()) return event("job", trimmed(text)), true;
      head_.front().text = replace_ill_formed((head_.front().text + ", " + line).substr(0, most_event));
      return end_head(), true;
    }
    for (const Beginning& known : beginnings)
      if (text.starts_with(known.text)) return event(known.kind, trimmed(text.substr(known.said))), true;
    return false;
  }

  // "      50/1800    2.8769 …": what comes next is of this step.
  void find_step(const std::string& line) {
    const std::string_view text = trimmed(line);
    const std::size_t slash = text.find('/');
    if (slash == text.npos || slash == 0 || text.find_first_not_of("0123456789") != slash) return;
    end_head();
    step_ = number_of(text);
  }

  ReportedRun& run_;
  std::string before_;  // the line before
  bool in_sample_ = false, in_times_ = false;
  std::int64_t step_ = 0;       // of the last line that names one
  std::string stop_;            // of the line before, where it names no step
  std::vector<RunEvent> head_;  // of a job that has begun, with the job itself
};

}  // namespace

void read_run_log(const std::string& file, ReportedRun& run) {
  const FileHandle log = FileHandle::open_to_read(file, "the log");
  LogReader reader(run);
  for_each_line(log, [&](const std::string& line, std::uint64_t) { reader.add(line); });
  reader.end();
}

}  // namespace forge
