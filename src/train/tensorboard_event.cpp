#include "train/tensorboard_event.hpp"

#include <array>
#include <bit>
#include <cstddef>

namespace forge {

namespace {

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = rest;
  }
  return table;
}();

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

// Fields of a protocol buffer: their number and wire type, then the value.
std::string whole(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}
std::string number(int field, double value) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string bytes_of(int field, const std::string& value) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(value.size()) + value;
}
std::string short_number(int field, float value) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 5) + little_endian(std::bit_cast<std::uint32_t>(value));
}

std::string packed(int field, const std::vector<double>& values) {
  std::string all;
  for (const double value : values) all += little_endian(std::bit_cast<std::uint64_t>(value));
  return bytes_of(field, all);
}

// Markdown's code: each line behind four spaces.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : text) code += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return code;
}

// Numbers of the fields in event.proto, summary.proto and tensor.proto.
constexpr int event_time = 1, event_step = 2, event_version = 3, event_summary = 5, event_session = 7;
constexpr int summary_value = 1, value_tag = 1, value_scalar = 2, value_histogram = 5, value_tensor = 8,
              value_metadata = 9;

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ crc_table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

TensorboardEvent::TensorboardEvent(double time, std::int64_t step)
    : head_(number(event_time, time) + whole(event_step, static_cast<std::uint64_t>(step))) {}

void TensorboardEvent::add_value(const std::string& body) {
  values_ += bytes_of(summary_value, body);
}

TensorboardEvent& TensorboardEvent::scalar(const std::string& tag, double value) {
  add_value(bytes_of(value_tag, tag) + short_number(value_scalar, static_cast<float>(value)));
  return *this;
}

TensorboardEvent& TensorboardEvent::text(const std::string& tag, const std::string& value) {
  constexpr std::uint64_t type_string = 7;
  const std::string shape = bytes_of(2, whole(1, 1));  // one dimension, of size 1
  const std::string tensor = whole(1, type_string) + bytes_of(2, shape) + bytes_of(8, as_code(value));
  const std::string plugin = bytes_of(1, bytes_of(1, "text"));
  add_value(bytes_of(value_tag, tag) + bytes_of(value_tensor, tensor) + bytes_of(value_metadata, plugin));
  return *this;
}

TensorboardEvent& TensorboardEvent::histogram(const std::string& tag, const std::vector<double>& counts) {
  double all = 0, sum = 0, squares = 0;
  std::vector<double> limits;
  for (const double count : counts) {
    const double middle = static_cast<double>(limits.size()) + 0.5;
    limits.push_back(static_cast<double>(limits.size()) + 1);
    all += count;
    sum += count * middle;
    squares += count * middle * middle;
  }
  const std::string body = number(1, 0) + number(2, static_cast<double>(counts.size())) + number(3, all) +
                           number(4, sum) + number(5, squares) + packed(6, limits) + packed(7, counts);
  add_value(bytes_of(value_tag, tag) + bytes_of(value_histogram, body));
  return *this;
}

TensorboardEvent& TensorboardEvent::file_version() {
  head_ += bytes_of(event_version, "brain.Event:2");
  return *this;
}

TensorboardEvent& TensorboardEvent::session_start() {
  head_ += bytes_of(event_session, whole(1, 1));
  return *this;
}

std::string TensorboardEvent::record() const {
  const std::string event = head_ + (values_.empty() ? "" : bytes_of(event_summary, values_));
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  return length + little_endian(masked_crc32c(length)) + event + little_endian(masked_crc32c(event));
}

}  // namespace forge
