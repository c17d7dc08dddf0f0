#include <cupti.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

// libkernel_times.so: a CUDA program that finds it in CUDA_INJECTION64_PATH writes to the file FORGE_KERNEL_TIMES, at
// its end, what each of its kernels took on the device, by CUPTI's records of activity: lines "microseconds, launches,
// kernel", tab-separated. Kernels run as they do without it.

namespace {

struct Time {
  std::uint64_t nanoseconds = 0, launches = 0;
};
std::mutex mutex;
std::map<std::string, Time> times;

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  constexpr std::size_t size = 4u << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, size));
  *bytes = size;
  *most_records = 0;
}

void CUPTIAPI read_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::scoped_lock lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    // Newer releases, which have a newer type, write these members at the same places.
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    Time& time = times[kernel->name];
    time.nanoseconds += kernel->end - kernel->start;
    ++time.launches;
  }
  std::free(buffer);
}

void write_times() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const char* path = std::getenv("FORGE_KERNEL_TIMES");
  std::FILE* file = path ? std::fopen(path, "w") : nullptr;
  if (!file) return;
  const std::scoped_lock lock(mutex);
  for (const auto& [name, time] : times) {
    int status = 0;
    char* plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    std::fprintf(file, "%.1f\t%llu\t%s\n", 1e-3 * static_cast<double>(time.nanoseconds),
                 static_cast<unsigned long long>(time.launches), plain ? plain : name.c_str());
    std::free(plain);
  }
  std::fclose(file);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(give_buffer, read_buffer) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    std::fputs("kernel_times: CUPTI records no kernels here\n", stderr);
    return 0;
  }
  std::atexit(write_times);
  return 1;
}
