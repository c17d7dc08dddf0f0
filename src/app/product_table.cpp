#include "app/product_table.hpp"

#include <charconv>
#include <cstdio>
#include <sstream>

#include "config/text.hpp"
#include "core/error.hpp"
#include "device/memory.hpp"

namespace forge {

namespace {

constexpr const char* key = "machine.product_algorithms: ";

std::string library_line() {
  return "library " + products_library();
}
std::string device_line() {
  return "device " + std::string(device_info().name);
}

std::string hex_of(const ProductAlgorithms::Words& words) {
  std::string text;
  char word[17];
  for (const std::uint64_t w : words) {
    std::snprintf(word, sizeof word, "%016llx", static_cast<unsigned long long>(w));
    text += word;
  }
  return text;
}

// "SHAPE = WORDS, SECONDS us, first SECONDS us"; false: it is something else.
bool read_entry(const std::string& line, std::string& shape, ProductAlgorithms::Entry& entry) {
  const std::size_t equals = line.find(" = ");
  if (equals == std::string::npos || equals == 0) return false;
  shape = line.substr(0, equals);
  const std::string value = line.substr(equals + 3);
  constexpr std::size_t digits = 16 * std::tuple_size_v<ProductAlgorithms::Words>;
  if (value.size() < digits || value.substr(0, digits).find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  for (std::size_t i = 0; i < entry.words.size(); ++i)
    std::from_chars(value.data() + 16 * i, value.data() + 16 * (i + 1), entry.words[i], 16);
  double fastest = 0, first = 0;
  int end = 0;
  if (std::sscanf(value.c_str() + digits, ", %lf us, first %lf us%n", &fastest, &first, &end) != 2 || end == 0 ||
      value.size() != digits + static_cast<std::size_t>(end))
    return false;
  entry.seconds = 1e-6 * fastest;
  entry.first_seconds = 1e-6 * first;
  return true;
}

}  // namespace

ProductAlgorithms read_product_algorithms(const std::string& path) {
  ProductAlgorithms algorithms;
  add_product_algorithms(read_text_file(path, most_product_table_bytes, "machine.product_algorithms"), path,
                         algorithms);
  return algorithms;
}

std::string product_algorithms_text(const ProductAlgorithms& algorithms) {
  std::string text = "# Written by forge tune: the algorithm of each product that was fastest.\n" + library_line() +
                     "\n" + device_line() + "\n";
  char seconds[64];
  for (const auto& [shape, entry] : algorithms.by_shape) {
    std::snprintf(seconds, sizeof seconds, ", %.2f us, first %.2f us\n", 1e6 * entry.seconds,
                  1e6 * entry.first_seconds);
    text += shape + " = " + hex_of(entry.words) + seconds;
  }
  return text;
}

void add_product_algorithms(const std::string& text, const std::string& path, ProductAlgorithms& to) {
  std::istringstream lines(text);
  std::string line, shape;
  const std::string expected[] = {library_line(), device_line()};
  std::size_t headers = 0;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    const std::string where = key + path + ":" + std::to_string(number) + ": ";
    if (headers < 2) {
      if (line != expected[headers])
        throw BadInput(where + shown(line) + ": this rank's is \"" + expected[headers] +
                       "\"; legal: a file that forge tune wrote for both");
      ++headers;
      continue;
    }
    ProductAlgorithms::Entry entry;
    if (!read_entry(line, shape, entry))
      throw BadInput(where + shown(line) +
                     ": legal is \"SHAPE = 128 hexadecimal digits, MICROSECONDS us, first "
                     "MICROSECONDS us\", as forge tune writes it");
    to.by_shape.emplace(shape, entry);
  }
  if (headers < 2) throw BadInput(key + path + " ends before its lines of library and device");
}

}  // namespace forge
