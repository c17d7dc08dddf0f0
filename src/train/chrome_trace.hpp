#pragma once

#include <cstdint>
#include <string>

#include "core/json.hpp"

namespace forge {

// A timeline in Chrome's trace format, which ui.perfetto.dev reads: processes, their threads, and what ran in them.
class ChromeTrace {
 public:
  void name_process(std::int64_t process, const std::string& text) { name("process_name", process, 0, text); }
  void name_thread(std::int64_t process, std::int64_t thread, const std::string& text) {
    name("thread_name", process, thread, text);
  }
  // Times in seconds. Spans of a thread follow or contain each other.
  void span(std::int64_t process, std::int64_t thread, const std::string& name, double start, double end,
            const JsonLine& arguments);
  std::string text() const { return "{\"traceEvents\": [" + events_ + "]}\n"; }

 private:
  void add(const JsonLine& event);
  void name(const char* what, std::int64_t process, std::int64_t thread, const std::string& name);

  std::string events_;
};

}  // namespace forge
