#include "config/former_keys.hpp"

#include <algorithm>
#include <array>

namespace forge {

namespace {

constexpr std::array former_keys = {
    FormerKey{"model", "capacity_scope", "", "sequence", "a capacity is one of each sequence's tokens"},
    FormerKey{"schedule", "chunks_per_stage", "schedule.virtual_stages", "", ""},
    FormerKey{"train", "fp8_carrier", "", "bf16",
              "what fp8 doesn't round is bf16; for tests FORGE_FP8_CARRIER=fp64 in the environment makes it fp64"},
    FormerKey{"machine", "product_algorithms", "", "*",
              "products on a GPU take the algorithm that cuBLASLt proposes first"},
    FormerKey{"machine", "dispatch_counts", "", "*", "the host reads how many rows go to experts of other ranks"},
    FormerKey{
        "machine", "attention", "", "*",
        "a run takes the fastest kernels that its GPU has for the deck; FORGE_ATTENTION chooses for measurements"},
    FormerKey{"machine", "grouped", "", "*",
              "a run takes the fastest kernels that its GPU has for the deck; FORGE_GROUPED chooses for measurements"},
    FormerKey{"machine", "fp8_products", "", "*",
              "products in fp8 are cuBLASLt's of 8-bit codes where the GPU and train.fp8_recipe allow it, else bf16's"},
};

}  // namespace

const FormerKey* former_key(const std::string& section, const std::string& name) {
  const auto found = std::find_if(former_keys.begin(), former_keys.end(),
                                  [&](const FormerKey& k) { return section == k.section && name == k.name; });
  return found == former_keys.end() ? nullptr : &*found;
}

}  // namespace forge
