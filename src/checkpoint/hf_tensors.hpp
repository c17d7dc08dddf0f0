#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "parallel/whole_tensors.hpp"

namespace forge {

// Checkpoint tensors under the names and in the shapes of the family's Hugging Face checkpoints.

// The ranks that hold the same values of a unit as this one: replicas, and without ZeRO all data-parallel ranks. Null:
// no other rank does.
using Replicas = std::function<Communicator*(const LocalUnit&)>;
Replicas replicas_of(Mesh& mesh);

// Fills the master weights of this rank from a directory's safetensors files, converted to the storage type; of coded
// weights their values. Of replicas the first one reads and gives the others its values. One BadInput lists every
// tensor that is missing or has another shape or type; another one says so where config.json ties the head to the
// embedding and the files have a head of other values. Holds one tensor at a time on the host. Returns the bytes of
// tensors that this rank has read, those for the means of new rows included (checkpoint/new_rows.hpp; `seed` is their
// noise's). Whoever calls it tells the session that the parameters have changed. The heartbeat, if any, beats behind
// each.
template <class T>
std::uint64_t load_hf_tensors(const std::string& directory, const ModelSpec& spec, std::uint64_t seed,
                              ParameterStorage<T>& storage, Stream& stream, const Replicas& replicas = {},
                              Heartbeat* heartbeat = nullptr);

// Likewise adapters from a directory of PEFT's, whose adapter_config.json must agree with the deck (model.adapter of
// `spec`). load_hf_tensors() leaves them as they are.
template <class T>
std::uint64_t load_hf_adapter(const std::string& directory, const ModelSpec& spec, ParameterStorage<T>& storage,
                              Stream& stream, const Replicas& replicas = {}, Heartbeat* heartbeat = nullptr);

// The routers' biases of the same files, (layers, E) in one line; empty: the model has none. A DeepSeek checkpoint must
// have them; the others' start at 0 where the file has none. Of `ranks`, which all call it, the first one reads; null:
// each does.
std::vector<double> load_router_biases(const std::string& directory, const ModelSpec& spec,
                                       Communicator* ranks = nullptr);

// Writes every parameter of the model, or its gradient, to one safetensors file, and with parameters the routers'
// biases (layers, E), where there are any: F64 where the storage type is double, else F32. The file appears under its
// name when it is complete; nothing of it stays where writing fails. All ranks call it; the first one writes.
template <class T>
void write_hf_tensors(const std::string& file, const std::vector<Unit>& units, WholeTensors<T>& tensors,
                      TensorSource source, Stream& stream, const std::map<std::string, std::string>& metadata,
                      const ModelSpec* biases_of = nullptr, const std::vector<double>& biases = {});

// The largest deviation of the gradients from a file's: max|g − r| over the larger of the tensor's max|r| and a
// thousandth of the largest r of all. Infinite where a tensor is missing, has another shape, or holds NaN.
// All ranks call it; the others than the first get 0.
template <class T>
double compare_gradients(const std::string& file, const std::vector<Unit>& units, WholeTensors<T>& tensors,
                         Stream& stream);

}  // namespace forge
