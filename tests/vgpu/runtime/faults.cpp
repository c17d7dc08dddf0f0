#include "faults.hpp"

#include <csignal>
#include <cstdint>

#include "fail.hpp"
#include "memory.hpp"

namespace vgpu {

namespace {

thread_local const char* doing = nullptr;

struct sigaction other_segv, other_bus;

// The signal comes from an instruction of this thread, so that no lock of its own can be half taken but malloc's.
void handle(int number, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (in_window(address))
    fail("the host, or a library that it called, touches memory of device " + std::to_string(device_of(info->si_addr)));
  if (doing) fail(std::string(doing) + " touches memory of the host that isn't there any more, or never was");
  sigaction(number, number == SIGSEGV ? &other_segv : &other_bus, nullptr);  // the instruction comes again
}

}  // namespace

void watch_faults() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &other_segv);
  sigaction(SIGBUS, &action, &other_bus);
}

FaultPlace::FaultPlace(const char* what) : before_(doing) {
  doing = what;
}
FaultPlace::~FaultPlace() {
  doing = before_;
}

}  // namespace vgpu
