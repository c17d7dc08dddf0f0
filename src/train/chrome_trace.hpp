#pragma once

#include <cstdint>
#include <string>

#include "core/json.hpp"

namespace forge {

// A timeline in Chrome's trace format, which ui.perfetto.dev reads: processes, their threads, and spans in them.
class ChromeTrace {
 public:
  void name_process(std::int64_t process, const std::string& text) { name("process_name", process, 0, text); }
  void name_thread(std::int64_t process, std::int64_t thread, const std::string& text) {
    name("thread_name", process, thread, text);
  }
  // Times in seconds. Spans of a thread follow or contain each other.
  void span(std::int64_t process, std::int64_t thread, const std::string& name, double start, double end,
            const JsonLine& arguments) {
    JsonLine event;
    event.add("ph", "X").add("name", name).add("pid", process).add("tid", thread);
    event.add("ts", 1e6 * start).add("dur", 1e6 * (end - start));
    add(event.add_raw("args", arguments.text()));
  }
  // Numbers of a process that hold from this time on, drawn as a stack.
  void counter(std::int64_t process, const std::string& name, double time, const JsonLine& values) {
    JsonLine event;
    event.add("ph", "C").add("name", name).add("pid", process).add("ts", 1e6 * time);
    add(event.add_raw("args", values.text()));
  }
  std::string text() const { return "{\"traceEvents\": [" + events_ + "]}\n"; }

 private:
  void add(const JsonLine& event) { events_ += (events_.empty() ? "" : ",") + event.text(); }
  void name(const char* what, std::int64_t process, std::int64_t thread, const std::string& name) {
    JsonLine event;
    event.add("ph", "M").add("name", what).add("pid", process).add("tid", thread);
    add(event.add_raw("args", JsonLine().add("name", name).text()));
  }

  std::string events_;
};

}  // namespace forge
