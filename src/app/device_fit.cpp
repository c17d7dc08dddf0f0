#include "app/device_fit.hpp"

#include <iterator>
#include <optional>

#include "app/job.hpp"
#include "config/suggest.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "kernels/attention/attention_cudnn.hpp"
#include "kernels/attention/attention_tiles.hpp"
#include "kernels/experts/grouped_cutlass.hpp"
#include "predict/machine.hpp"

namespace forge {

namespace {

// GPUs by the size that they are sold with, and what the driver reports of the smallest of that size.
struct SoldGpu {
  const char* size;
  std::size_t mib;
};
constexpr SoldGpu sold_gpus[] = {{"24 GB", 23034}, {"40 GB", 40960},   {"48 GB", 46068},
                                 {"80 GB", 81559}, {"141 GB", 143771}, {"180 GB", 183359}};

std::string need_text(const RankMemory& memory) {
  return format_bytes(memory.plan.total()) + " planned and " + format_bytes(total(memory.libraries)) + " for libraries";
}

// "40GiB", "40 GB", "40960MiB"; 0: no size. Of a size in GB what GPUs of that size have.
std::size_t mib_of_size(const std::string& text) {
  std::size_t digits = 0;
  while (digits < text.size() && digits < 9 && text[digits] >= '0' && text[digits] <= '9') ++digits;
  if (digits == 0) return 0;
  const std::size_t number = std::stoull(text.substr(0, digits));
  const std::string unit = letters_of(text.substr(digits));
  if (unit == "gib") return number << 10;
  if (unit == "mib") return number;
  if (unit != "gb" && unit != "g") return 0;
  for (const SoldGpu& gpu : sold_gpus)
    if (gpu.size == std::to_string(number) + " GB") return gpu.mib;
  return number * 1000 * 1000 * 1000 >> 20;
}

}  // namespace

AskedGpu gpu_of(const std::string& name) {
  std::string legal;
  for (const Gpu& gpu : gpus) {
    if (letters_of(name) == letters_of(gpu.name)) return {gpu.name, gpu.mib, gpu.capability};
    legal += (legal.empty() ? "" : ", ") + std::string(gpu.name);
  }
  if (const std::size_t mib = mib_of_size(name); mib > 0) return {name, mib};
  try {
    const Machine machine = read_machine(name);
    if (machine.cores_per_node == 0)
      return {name, machine.memory_bytes >> 20, machine.capability, machine.ranks_per_node};
  } catch (const BadInput& error) {
    throw BadInput("--gpu " + name + ": legal are " + legal + ", a size such as 40GiB, or a machine: " + error.what());
  }
  throw BadInput("--gpu " + name + ": that machine has no GPUs; legal are " + legal +
                 ", a size such as 40GiB, or a machine of GPUs");
}

std::string fitting_gpus(const RankMemory& memory) {
  for (const SoldGpu& gpu : sold_gpus)
    if (memory.total() <= usable_bytes(gpu.mib << 20))
      return "GPUs of " + std::string(gpu.size) + " or more, one a rank: " + need_text(memory) + ", of " +
             format_bytes(usable_bytes(gpu.mib << 20));
  return "no GPU of up to " + std::string(std::end(sold_gpus)[-1].size) + ": " + need_text(memory);
}

std::string fit_text(const RunSetup& setup, const AskedGpu& gpu) {
  const RankMemory memory = rank_memory(setup, RunKind::training);
  const std::size_t usable = usable_bytes(gpu.mib << 20);
  const std::string need = need_text(memory) + " are " + format_bytes(memory.total()) + " of " + format_bytes(usable);
  const std::string name = gpu.name;
  if (memory.total() <= usable) return "fits on " + name + ": " + need + "\n";
  return "doesn't fit on " + name + ": " + need + "\n" + nearest_change(setup, RunKind::training, usable, FitOn::gpu) +
         "\n" + fewest_gpus(setup.deck, usable, setup.capability).text() + "\n";
}

namespace {

// Attention of a CPU has its tiles there.
void refuse_small_workspace(const Deck& deck) {
  const ModelSpec spec = resolve_model(deck.model);
  const bool fp64 = deck.train.precision == PrecisionName::fp64;
  const std::size_t least = fp64 ? attention_thread_bytes<double>(spec.D(), spec.value_dim())
                                 : attention_thread_bytes<float>(spec.D(), spec.value_dim());
  if (library_bytes(deck) >= least) return;
  throw BadInput("machine.workspace_mib = " + std::to_string(deck.machine.workspace_mib) +
                 ": attention on a CPU keeps " + format_bytes(least) +
                 " a thread there; legal: " + std::to_string((least + (1 << 20) - 1) >> 20) + " or more");
}

void refuse_attention(AttentionKernel attention) {
  if (!on_tensor_cores(attention)) return;
  const std::string asked = asked_text(attention);
  if (std::string(device_info().kind) == "cpu")
    throw BadInput(
        asked + ": this build computes on the CPU; legal: automatic, the default, or cuda_cores, or a build for GPUs");
  if (attention == AttentionKernel::cudnn && !cudnn_built_in())
    throw BadInput(asked +
                   ": this build has no cuDNN; legal: automatic, the default, tensor_cores, or a build with "
                   "FORGE_CUDNN (docs/start.md)");
}

void refuse_grouped_products(GroupedProducts grouped) {
  if (grouped == GroupedProducts::automatic || grouped == GroupedProducts::library) return;
  const std::string asked = asked_text(grouped);
  const DeviceInfo device = device_info();
  if (std::string(device.kind) == "cpu")
    throw BadInput(asked +
                   ": this build computes on the CPU; legal: automatic, the default, or library, or a build for GPUs");
  if (grouped != GroupedProducts::cutlass) return;
  if (!cutlass_built_in())
    throw BadInput(asked +
                   ": this build has no kernels of CUTLASS; legal: automatic, the default, library, tensor_cores, or a "
                   "build with FORGE_CUTLASS (docs/start.md)");
  if (const std::string features = device.features; !cutlass_has_kernels_here())
    throw BadInput(asked + ": this GPU is of " + features +
                   ", and the kernels are those of sm_90; legal: automatic, the default, library, or tensor_cores");
}

}  // namespace

void refuse_what_the_device_lacks(const RunSetup& setup) {
  const Deck& deck = setup.deck;
  if (std::string(device_info().kind) == "cpu") refuse_small_workspace(deck);
  refuse_attention(setup.buffers.kernels.attention);
  refuse_grouped_products(setup.buffers.kernels.grouped);
  refuse_scales(setup);
}

void refuse_what_does_not_fit(const RunSetup& setup, RunKind kind, const World& world) {
  const std::optional<std::size_t> mine = free_device_memory();
  if (!mine) return refuse_what_nodes_lack(setup, kind, world);
  auto free = static_cast<std::int64_t>(*mine);
  if (world.size() > 1) world.make_world()->min_host({&free, 1});
  const auto limit = to_size(free);
  const RankMemory memory = rank_memory(setup, kind);
  if (memory.total() <= limit) return;
  throw BadInput("the deck doesn't fit: " + need_text(memory) + " are " + format_bytes(memory.total()) +
                 " a rank, of " + format_bytes(limit) + " that are free on the GPU; " +
                 nearest_change(setup, kind, limit, FitOn::gpu));
}

}  // namespace forge
