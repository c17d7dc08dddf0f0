#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace forge {

// Reads a shard, all of it and from the disk (DiskReader), and compares it with what its manifest says, or its writer.
// `datasets`: all of the shard's, which count in `tensors`. What is wrong, one text for each finding; none: every byte
// is what it was. `between` is called now and then, and may end it by throwing.
std::vector<std::string> shard_damage(const std::string& path, const StoredShard& shard,
                                      const std::vector<StoredTensor>& tensors,
                                      const std::vector<const StoredDataset*>& datasets,
                                      const std::function<void()>& between = {});

}  // namespace forge
