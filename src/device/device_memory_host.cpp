#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "core/bytes.hpp"
#include "core/shortage.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "device/isa.hpp"
#include "device/memory_left.hpp"
#include "device/parallel.hpp"
#include "device/pinned.hpp"

namespace forge {

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw Shortage("no memory for " + format_bytes(bytes) + ": " + std::strerror(errno) + "; " + memory_left_text());
  madvise(p, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(p);
}

Buffer::~Buffer() {
  if (data_) munmap(data_, bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

namespace {

// f(begin, end) of parts of so many bytes, by the stream's threads. Of memory that is new, each thread touches a part
// first: about that which it computes with.
template <class F>
void in_parts(Stream& stream, std::size_t bytes, const F& f) {
  constexpr std::int64_t page = std::int64_t{1} << 21;  // a large one
  if (bytes == 0) return;
  stream.run(
      [=, threads = stream.threads()] { device_detail::split(threads, static_cast<std::int64_t>(bytes), page, f); });
}

}  // namespace

void copy_on_device(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (to == from) return;
  in_parts(stream, bytes, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin, to_size(end - begin));
  });
}

void copy_to_device(Stream& stream, void* device, const void* host, std::size_t bytes) {
  copy_on_device(stream, device, host, bytes);
}

void copy_to_host(Stream& stream, void* host, const void* device, std::size_t bytes) {
  copy_on_device(stream, host, device, bytes);
}

void fill_zero(Stream& stream, void* device, std::size_t bytes) {
  in_parts(stream, bytes, [=](std::int64_t begin, std::int64_t end) {
    std::memset(static_cast<std::byte*>(device) + begin, 0, to_size(end - begin));
  });
}

void* allocate_pinned(std::size_t bytes) {
  return ::operator new(bytes);
}

void free_pinned(void* memory, std::size_t /*bytes*/) noexcept {
  ::operator delete(memory);
}

DeviceInfo device_info() {
  DeviceInfo info{};
  info.kind = "cpu";
  std::string name = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.rfind("model name", 0) == 0) {
      name = line.substr(std::min(line.size(), line.find(':') + 2));
      break;
    }
  std::snprintf(info.name, sizeof info.name, "%s", name.c_str());
  std::snprintf(info.features, sizeof info.features, "%s", name_of(host_isa()));
  info.memory_bytes = to_size(sysconf(_SC_PHYS_PAGES)) * to_size(sysconf(_SC_PAGESIZE));
  info.cores = static_cast<int>(std::thread::hardware_concurrency());
  return info;
}

void select_device(int) {}

std::optional<std::size_t> free_device_memory() {
  return {};
}

std::string device_id() {
  return "";
}

std::string device_library() {
  return "";
}

}  // namespace forge
