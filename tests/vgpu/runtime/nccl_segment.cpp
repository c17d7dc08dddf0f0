#include "nccl_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include "fail.hpp"
#include "settings.hpp"

namespace vgpu {

namespace {

constexpr char name_mark[8] = {'v', 'g', 'p', 'u', 'n', 'c', 'c', 'l'};

// Files of this process that ids name.
class Files {
 public:
  void add(std::uint64_t number, int file) {
    const std::lock_guard lock(mutex_);
    files_[number] = file;
  }
  void close_of(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(number);
    if (found == files_.end()) return;
    close(found->second);
    files_.erase(found);
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, int> files_;
};

Files& files() {
  static auto& all = *new Files;
  return all;
}

std::size_t slots_begin() {
  return 4096;
}
std::size_t channels_begin(int ranks) {
  return slots_begin() + static_cast<std::size_t>(ranks) * sizeof(RankSlot);
}
std::size_t segment_bytes(int ranks) {
  return channels_begin(ranks) + static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks) * sizeof(Channel);
}

// The process's one mapping of a segment, until the last of its ranks has let go.
std::shared_ptr<char> map_segment(std::uint64_t number, std::size_t bytes, int file) {
  static std::mutex mutex;
  static auto& mapped = *new std::map<std::pair<std::uint64_t, std::size_t>, std::weak_ptr<char>>;
  const std::lock_guard lock(mutex);
  std::erase_if(mapped, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = mapped.find({number, bytes}); found != mapped.end())
    if (auto memory = found->second.lock()) return memory;
  // All come with the same size, or are told; the file never shrinks.
  void* p = posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0
                ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                : MAP_FAILED;
  if (p == MAP_FAILED) fail(std::string("no memory for ranks to meet in: ") + std::strerror(errno));
  std::shared_ptr<char> memory(static_cast<char*>(p), [bytes](char* m) { munmap(m, bytes); });
  mapped[{number, bytes}] = memory;
  return memory;
}

}  // namespace

struct Segment::Header {
  std::uint64_t number;
  std::atomic<std::int32_t> ranks;  // 0 until the first has come
  Bell bell;
};

SegmentName name_of(const ncclUniqueId& id) {
  SegmentName name;
  std::memcpy(&name, id.internal, sizeof name);
  return name;
}

ncclUniqueId make_id() {
  SegmentName name{};
  std::memcpy(name.mark, name_mark, sizeof name_mark);
  name.process = getpid();
  name.file = memfd_create("forge-vgpu-nccl", MFD_CLOEXEC);
  if (getrandom(&name.number, sizeof name.number, 0) != sizeof name.number || name.file < 0 ||
      ftruncate(name.file, static_cast<off_t>(slots_begin())) != 0 ||
      pwrite(name.file, &name.number, sizeof name.number, 0) != sizeof name.number)
    fail(std::string("no memory for ranks to meet in: ") + std::strerror(errno));
  files().add(name.number, name.file);
  ncclUniqueId id{};
  std::memcpy(id.internal, &name, sizeof name);
  return id;
}

const char* name_of(Collective kind) {
  switch (kind) {
    case Collective::all_reduce:
      return "ncclAllReduce";
    case Collective::all_gather:
      return "ncclAllGather";
    case Collective::reduce_scatter:
      return "ncclReduceScatter";
    case Collective::broadcast:
      return "ncclBroadcast";
  }
  return "?";
}

std::string Call::text() const {
  return std::string(name_of(kind)) + " of " + std::to_string(count) + " elements of type " + std::to_string(type) +
         (kind == Collective::broadcast ? " from rank " + std::to_string(root) : "");
}

Segment::Segment(const ncclUniqueId& id, int ranks) : name_(name_of(id)), ranks_(ranks), number_(name_.number) {
  if (std::memcmp(name_.mark, name_mark, sizeof name_mark) != 0) {
    problem_ = "the ncclUniqueId was not made by ncclGetUniqueId";
    return;
  }
  const std::string path = "/proc/" + std::to_string(name_.process) + "/fd/" + std::to_string(name_.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  std::uint64_t number = 0;
  if (file < 0 || pread(file, &number, sizeof number, 0) != sizeof number || number != number_) {
    problem_ = "the process that made the ncclUniqueId cannot be reached, or its communicator is complete";
    if (file >= 0) close(file);
    return;
  }
  memory_ = map_segment(number_, segment_bytes(ranks), file);
  close(file);
  std::int32_t expected = 0;
  if (!header().ranks.compare_exchange_strong(expected, ranks) && expected != ranks)
    problem_ =
        "ranks of one communicator come with " + std::to_string(expected) + " and " + std::to_string(ranks) + " ranks";
}

RankSlot& Segment::slot(int rank) const {
  return reinterpret_cast<RankSlot*>(memory_.get() + slots_begin())[rank];
}

Channel& Segment::channel(int from, int to) const {
  return reinterpret_cast<Channel*>(memory_.get() + channels_begin(ranks_))[from * ranks_ + to];
}

void Segment::ring() const {
  header().bell.ring();
}

void Segment::wait_until(const std::function<bool()>& so, const std::function<std::string()>& what) const {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    const std::uint32_t heard = header().bell.heard();
    if (so()) return;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > settings().timeout_seconds)
      fail("a host has waited for " + std::to_string(static_cast<int>(settings().timeout_seconds)) +
           " seconds (FORGE_VGPU_TIMEOUT_SECONDS) in " + what());
    header().bell.sleep(heard, 1);
  }
}

void Segment::forget_name() const {
  if (name_.process == getpid()) files().close_of(number_);
}

}  // namespace vgpu
