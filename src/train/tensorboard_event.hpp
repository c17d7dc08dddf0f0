#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

// CRC-32C (Castagnoli), and as TensorFlow's records mask it.
std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

// An event of TensorBoard: named values of a step, as bytes of the protocol buffer tensorflow.Event.
class TensorboardEvent {
 public:
  // `time`: seconds since 1970.
  TensorboardEvent(double time, std::int64_t step);
  TensorboardEvent& scalar(const std::string& tag, double value);
  // Shown as it is, not as Markdown.
  TensorboardEvent& text(const std::string& tag, const std::string& value);
  // counts[i] from i to i + 1.
  TensorboardEvent& histogram(const std::string& tag, const std::vector<double>& counts);
  // Instead of values. The first event of a file; and a start, behind which earlier files' values of this and later
  // steps count no more.
  TensorboardEvent& file_version();
  TensorboardEvent& session_start();
  // A TFRecord: length, its check, the event, its check.
  std::string record() const;

 private:
  void add_value(const std::string& body);
  std::string head_, values_;
};

}  // namespace forge
