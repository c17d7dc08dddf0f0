#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace forge {

// Reads a shard, all of it and from the disk (DiskReader), and compares it with its manifest, or with its writer's
// table. `datasets`: all of the shard's, which count in `tensors`. Returns the errors, one text for each; none: every
// byte is unchanged. `between` is called now and then, and may end it by throwing.
std::vector<std::string> shard_damage(const std::string& path, const StoredShard& shard,
                                      const std::vector<StoredTensor>& tensors,
                                      const std::vector<const StoredDataset*>& datasets,
                                      const std::function<void()>& between = {});

}  // namespace forge
