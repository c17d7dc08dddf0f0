#include "device/nvtx_range.hpp"

#if defined(FORGE_NVTX)
#include <nvtx3/nvToolsExt.h>
#endif

namespace forge {

#if defined(FORGE_NVTX)

namespace {

// Null without a profiler.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t forge = nvtxDomainCreateA("forge");
  return forge;
}

}  // namespace

bool NvtxRange::listened_to() {
  return domain() != nullptr;
}

NvtxRange::NvtxRange(const std::string& name) {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name.c_str();
  nvtxDomainRangePushEx(domain(), &event);
}

NvtxRange::~NvtxRange() {
  nvtxDomainRangePop(domain());
}

#else

bool NvtxRange::listened_to() {
  return false;
}
NvtxRange::NvtxRange(const std::string&) {}
NvtxRange::~NvtxRange() = default;

#endif

}  // namespace forge
