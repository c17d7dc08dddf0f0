#include "report/report_page.hpp"

#include <set>

#include "core/json.hpp"

namespace forge {

namespace {

// [{"key": "train.steps", "values": ["60", null]}, …]: keys that decks of two runs have with other values.
std::string differences_json(const std::vector<ReportedRun>& runs) {
  std::set<std::string> keys;
  for (const ReportedRun& run : runs)
    for (const auto& [key, value] : run.keys) keys.insert(key);
  std::vector<JsonLine> rows;
  for (const std::string& key : keys) {
    std::set<std::string> different;
    std::string values;
    for (const ReportedRun& run : runs) {
      if (run.keys.empty()) continue;
      const auto at = run.keys.find(key);
      different.insert(at == run.keys.end() ? "" : "=" + at->second);
    }
    if (different.size() < 2) continue;
    for (const ReportedRun& run : runs) {
      const auto at = run.keys.find(key);
      values += (values.empty() ? "" : ", ") + (at == run.keys.end() ? "null" : json_of(at->second));
    }
    rows.push_back(JsonLine().add("key", key).add_raw("values", "[" + values + "]"));
  }
  return json_of(rows);
}

// Inside of a script nothing may look like its end: "<" stands in texts alone, where its escape is the same.
std::string inside_of_script(const std::string& json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

}  // namespace

std::string report_page(const std::vector<ReportedRun>& runs) {
  std::string list;
  for (const ReportedRun& run : runs) list += (list.empty() ? "" : ",\n") + json_of_run(run);
  const std::string data = "{\"runs\": [\n" + list + "], \"differences\": " + differences_json(runs) + "}";
  return std::string("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n") +
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
         "style-src 'unsafe-inline'\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>forge "
         "report</title>\n<style>" +
         page_style +
         "</style>\n</head>\n<body>\n<main id=\"page\"><noscript>The page draws its data with a script: allow it to "
         "run.</noscript></main>\n<script id=\"data\" type=\"application/json\">" +
         inside_of_script(data) + "</script>\n<script>" + page_drawings + page_sections +
         "</script>\n</body>\n</html>\n";
}

}  // namespace forge
