// A profiler that NVTX loads (NVTX_INJECTION64_PATH): each range that is pushed is a line of the file in
// FORGE_NVTX_LOG, and what doesn't end is a line "open" when the program ends.
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

std::mutex mutex;
std::FILE* file = nullptr;
std::atomic<int> open_ranges = 0;

nvtxDomainHandle_t NVTX_API create(const char*) {
  static int forge;
  return reinterpret_cast<nvtxDomainHandle_t>(&forge);
}

int NVTX_API push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  const std::scoped_lock lock(mutex);
  std::fprintf(file, "%s\n", event->message.ascii);
  return open_ranges++;
}

int NVTX_API pop(nvtxDomainHandle_t) {
  return --open_ranges;
}

template <class Function>
void set(NvtxFunctionTable table, NvtxCallbackIdCore2 id, Function function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

void finish() {
  for (int i = open_ranges; i > 0; --i) std::fputs("open\n", file);
  std::fclose(file);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables) {
  file = std::fopen(std::getenv("FORGE_NVTX_LOG"), "w");
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!file || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  set(table, NVTX_CBID_CORE2_DomainCreateA, create);
  set(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(table, NVTX_CBID_CORE2_DomainRangePop, pop);
  std::atexit(finish);
  return 1;
}
