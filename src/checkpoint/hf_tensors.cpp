#include "checkpoint/hf_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "config/report.hpp"
#include "config/safetensors.hpp"

namespace forge {

namespace {

// Shape in the checkpoint: (in, out) where the family stores it so.
std::vector<std::int64_t> file_shape(const Parameter& p) {
  return p.hf_transposed ? std::vector<std::int64_t>{p.shape[1], p.shape[0]} : p.shape;
}

template <class S>
std::vector<S> transposed(const std::vector<S>& from, std::int64_t rows, std::int64_t columns) {
  std::vector<S> to(from.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      to[static_cast<std::size_t>(j * rows + i)] = from[static_cast<std::size_t>(i * columns + j)];
  return to;
}

// A GPT-2 file may leave out the prefix that all its names share.
const TensorInfo* find_tensor(const TensorFiles& files, const Parameter& p) {
  constexpr std::string_view prefix = "transformer.";
  const TensorInfo* info = files.find(p.hf_name);
  if (!info && p.hf_name.rfind(prefix, 0) == 0) info = files.find(p.hf_name.substr(prefix.size()));
  return info;
}

std::string problem_of(const TensorFiles& files, const Parameter& p) {
  const TensorInfo* info = find_tensor(files, p);
  if (!info) return "tensor " + p.hf_name + " " + shape_text(file_shape(p)) + " is missing";
  if (info->shape != file_shape(p))
    return files.file_of(*info) + ": tensor " + info->name + " has shape " + shape_text(info->shape) +
           ", config.json asks for " + shape_text(file_shape(p));
  return "";
}

template <class F>
void for_each_parameter(const std::vector<Unit>& units, F f) {
  for (std::size_t u = 0; u < units.size(); ++u)
    for (const auto& p : units[u].parameters) f(u, p);
}

// A parameter, or its gradient, on the host in the file's order.
template <class T>
std::vector<acc_t<T>> host_values(const ParameterStorage<T>& storage, std::size_t unit, const Parameter& p,
                                  TensorSource source, Stream& stream) {
  const auto view = source == TensorSource::gradients ? storage.gradient(unit, p) : storage.master(unit, p);
  std::vector<acc_t<T>> values(static_cast<std::size_t>(view.size()));
  copy_to_host(stream, values.data(), view.data, values.size() * sizeof(acc_t<T>));
  stream.synchronize();
  return p.hf_transposed ? transposed(values, p.shape[0], p.shape[1]) : values;
}

}  // namespace

template <class T>
void load_hf_tensors(const std::string& directory, ParameterStorage<T>& storage, Stream& stream) {
  using S = acc_t<T>;
  const TensorFiles files = TensorFiles::open(directory);
  Report report;
  for_each_parameter(storage.units(), [&](std::size_t, const Parameter& p) {
    if (const auto problem = problem_of(files, p); !problem.empty()) report.add("", problem);
  });
  report.throw_if_any("model.hf " + directory);
  for_each_parameter(storage.units(), [&](std::size_t u, const Parameter& p) {
    std::vector<S> values(static_cast<std::size_t>(p.elements()));
    files.read(*find_tensor(files, p), std::span<S>(values));
    if (p.hf_transposed) values = transposed(values, p.shape[1], p.shape[0]);
    copy_to_device(stream, storage.master(u, p).data, values.data(), values.size() * sizeof(S));
    stream.synchronize();
  });
  storage.refresh_copies(stream);
}

template <class T>
void write_hf_tensors(const std::string& file, const ParameterStorage<T>& storage, TensorSource source, Stream& stream,
                      const std::map<std::string, std::string>& metadata) {
  using S = acc_t<T>;
  std::vector<TensorInfo> infos;
  for_each_parameter(storage.units(), [&](std::size_t, const Parameter& p) {
    TensorInfo info;
    info.name = p.hf_name;
    info.type = std::is_same_v<S, double> ? "F64" : "F32";
    info.shape = file_shape(p);
    infos.push_back(info);
  });
  SafetensorsWriter writer(file, infos, metadata);
  for_each_parameter(storage.units(), [&](std::size_t u, const Parameter& p) {
    const auto values = host_values(storage, u, p, source, stream);
    writer.write(p.hf_name, std::as_bytes(std::span<const S>(values)));
  });
  writer.finish();
}

template <class T>
double compare_gradients(const std::string& file, const ParameterStorage<T>& storage, Stream& stream) {
  const TensorFiles files = TensorFiles::open(file);
  struct Deviation {
    double difference, largest;
  };
  std::vector<Deviation> deviations;
  bool comparable = true;
  for_each_parameter(storage.units(), [&](std::size_t u, const Parameter& p) {
    if (!problem_of(files, p).empty()) {
      comparable = false;
      return;
    }
    const auto values = host_values(storage, u, p, TensorSource::gradients, stream);
    std::vector<double> reference(values.size());
    files.read(*find_tensor(files, p), std::span<double>(reference));
    Deviation d{0, 0};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(static_cast<double>(values[i]) - reference[i]);
      d.difference = difference > d.difference || std::isnan(difference) ? difference : d.difference;
      d.largest = std::max(d.largest, std::abs(reference[i]));
    }
    comparable = comparable && !std::isnan(d.difference);
    deviations.push_back(d);
  });
  if (!comparable) return HUGE_VAL;
  double largest = 0, worst = 0;
  for (const auto& d : deviations) largest = std::max(largest, d.largest);
  for (const auto& d : deviations) worst = std::max(worst, d.difference / std::max(d.largest, 1e-3 * largest));
  return worst;
}

#define FORGE_INSTANTIATE(T)                                                                               \
  template void load_hf_tensors<T>(const std::string&, ParameterStorage<T>&, Stream&);                     \
  template void write_hf_tensors<T>(const std::string&, const ParameterStorage<T>&, TensorSource, Stream&, \
                                    const std::map<std::string, std::string>&);                            \
  template double compare_gradients<T>(const std::string&, const ParameterStorage<T>&, Stream&);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
