#pragma once

#include <map>
#include <string>

#include "parallel/storage.hpp"

namespace forge {

// Checkpoint tensors under the names and in the shapes of the family's Hugging Face checkpoints.

// Fills the master weights from a directory's safetensors files, converted to the storage type. One BadInput lists
// every tensor that is missing or has another shape. Holds one tensor at a time on the host.
template <class T>
void load_hf_tensors(const std::string& directory, ParameterStorage<T>& storage, Stream& stream);

enum class TensorSource { parameters, gradients };

// Writes every parameter, or its gradient, to one safetensors file: F64 where the storage type is double, else F32. The
// file appears under its name when it is complete.
template <class T>
void write_hf_tensors(const std::string& file, const ParameterStorage<T>& storage, TensorSource source, Stream& stream,
                      const std::map<std::string, std::string>& metadata);

// The largest deviation of the gradients from a file's: max|g − r| over the largest entry of that tensor's r, but of no
// less than a thousandth of the largest of all. Infinite where a tensor is missing, has another shape, or holds NaN.
template <class T>
double compare_gradients(const std::string& file, const ParameterStorage<T>& storage, Stream& stream);

}  // namespace forge
