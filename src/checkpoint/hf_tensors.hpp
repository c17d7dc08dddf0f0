#pragma once

#include <map>
#include <string>

#include "parallel/storage.hpp"

namespace forge {

// Checkpoint tensors under the names and in the shapes of the family's Hugging Face checkpoints.

// Fills the master weights from a directory's safetensors files, converted to the storage type; a tensor that is missing
// or has another shape is BadInput that names it with both shapes. Holds one tensor at a time on the host.
template <class T>
void load_hf_tensors(const std::string& directory, ParameterStorage<T>& storage, Stream& stream);

enum class TensorSource { parameters, gradients };

// Writes every parameter, or its gradient, to one safetensors file: F64 where the storage type is double, else F32. The
// file appears under its name when it is complete.
template <class T>
void write_hf_tensors(const std::string& file, const ParameterStorage<T>& storage, TensorSource source, Stream& stream,
                      const std::map<std::string, std::string>& metadata);

}  // namespace forge
