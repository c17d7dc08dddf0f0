#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hf/safetensors.hpp"

namespace forge {

// Tensors of a directory, in <stem>.safetensors, or in <stem>-00001-of-00003.safetensors … with
// <stem>.safetensors.index.json where one file would be larger than `most_file_bytes`. `stem`: "model" of Hugging
// Face's.
struct TensorDirectory {
  std::string path, stem;
  std::uint64_t most_file_bytes;
};

// `tensors`: name, type and shape. `bytes_of(i)`: the bytes of the i-th, asked for once each, in order; held one at a
// time. Makes the directory, and removes an earlier call's files of this stem. Throws IoFailed.
void write_tensor_directory(const TensorDirectory& directory, const std::vector<TensorInfo>& tensors,
                            const std::function<std::vector<std::byte>(std::size_t)>& bytes_of);

// Removes a directory's files of such a stem, but for those in `kept`. Throws IoFailed.
void remove_tensor_files(const std::string& path, const std::string& stem, const std::vector<std::string>& kept = {});

}  // namespace forge
