#include "train/chrome_trace.hpp"

namespace forge {

void ChromeTrace::add(const JsonLine& event) {
  events_ += (events_.empty() ? "" : ",") + event.text();
}

void ChromeTrace::name(const char* what, std::int64_t process, std::int64_t thread, const std::string& name) {
  JsonLine event;
  event.add("ph", "M").add("name", what).add("pid", process).add("tid", thread);
  add(event.add_raw("args", JsonLine().add("name", name).text()));
}

void ChromeTrace::span(std::int64_t process, std::int64_t thread, const std::string& name, double start, double end,
                       const JsonLine& arguments) {
  JsonLine event;
  event.add("ph", "X").add("name", name).add("pid", process).add("tid", thread);
  event.add("ts", 1e6 * start).add("dur", 1e6 * (end - start));
  add(event.add_raw("args", arguments.text()));
}

}  // namespace forge
