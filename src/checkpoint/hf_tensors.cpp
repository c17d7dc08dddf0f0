#include "checkpoint/hf_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "config/family.hpp"
#include "config/report.hpp"
#include "core/to_size.hpp"
#include "hf/block_scales.hpp"
#include "hf/quantization.hpp"
#include "nn/units.plan.hpp"

namespace forge {

namespace {

// Shape in the checkpoint: (in, out) where the family stores it so.
std::vector<std::int64_t> file_shape(const Parameter& p) {
  return p.hf_transposed ? std::vector<std::int64_t>{p.shape[1], p.shape[0]} : p.shape;
}

template <class A>
std::vector<A> transposed(const std::vector<A>& from, std::int64_t rows, std::int64_t columns) {
  std::vector<A> to(from.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[to_size(j * rows + i)] = from[to_size(i * columns + j)];
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
  for (const Unit& unit : units)
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) f(unit, i);
}

// Ranks that receive nothing have no values.
template <class A>
std::vector<A> in_file_order(std::vector<A> values, const Parameter& p) {
  return p.hf_transposed && !values.empty() ? transposed(values, p.shape[0], p.shape[1]) : values;
}

}  // namespace

template <class T>
void load_hf_tensors(const std::string& directory, ParameterStorage<T>& storage, Stream& stream, Heartbeat* heartbeat) {
  using A = acc_t<T>;
  const TensorFiles files = TensorFiles::open(directory);
  const bool fp8 = has_quantization(directory);
  Report report;
  for (const LocalUnit& unit : storage.units())
    for (const Parameter& p : unit.parameters) {
      std::string problem = problem_of(files, p);
      if (problem.empty()) problem = weight_problem(files, *find_tensor(files, p), fp8);
      if (!problem.empty()) report.add("", problem);
    }
  report.throw_if_any("model.hf " + directory);
  for (std::size_t u = 0; u < storage.size(); ++u) {
    // Only what the rank needs is read, but all of a tensor that the file has the other way round, once.
    std::vector<A> values;
    const Parameter* whole = nullptr;
    storage.fill(stream, u, [&](const Parameter& p, const Range& elements) {
      const Range range = p.hf_transposed ? Range{0, p.elements()} : elements;
      if (!p.hf_transposed || whole != &p) {
        values.resize(to_size(range.size()));
        read_weight(files, *find_tensor(files, p), std::span<A>(values), range.begin);
        if (p.hf_transposed) values = transposed(values, p.shape[1], p.shape[0]);
      }
      whole = p.hf_transposed ? &p : nullptr;
      if (heartbeat) heartbeat->beat();
      return [&values, first = range.begin](std::int64_t element) { return values[to_size(element - first)]; };
    });
  }
}

std::vector<double> load_router_biases(const std::string& directory, const ModelSpec& spec) {
  if (!spec.options.router_bias) return {};
  const std::vector<RouterBias> biases = router_biases(spec);  // of the layers with experts, which may be none
  const TensorFiles files = TensorFiles::open(directory);
  const std::int64_t experts = spec.E();
  std::vector<double> values(to_size((spec.L() + spec.options.mtp_depth) * experts), 0);
  Report report;
  for (const RouterBias& bias : biases) {
    const TensorInfo* info = files.find(bias.hf_name);
    const std::vector<std::int64_t> shape{experts};
    if (!info && spec.options.family == Family::deepseek_v3)
      report.add("", "tensor " + bias.hf_name + " " + shape_text(shape) + " is missing");
    else if (info && info->shape != shape)
      report.add("", files.file_of(*info) + ": tensor " + info->name + " has shape " + shape_text(info->shape) +
                         ", config.json asks for " + shape_text(shape));
    else if (info)
      files.read(*info, std::span<double>(values).subspan(to_size(bias.layer * experts), to_size(experts)));
  }
  report.throw_if_any("model.hf " + directory);
  return values;
}

template <class T>
void write_hf_tensors(const std::string& file, const std::vector<Unit>& units, WholeTensors<T>& tensors,
                      TensorSource source, Stream& stream, const std::map<std::string, std::string>& metadata,
                      const ModelSpec* biases_of, const std::vector<double>& biases) {
  using A = acc_t<T>;
  const std::vector<RouterBias> routers =
      biases_of && !biases.empty() ? router_biases(*biases_of) : std::vector<RouterBias>{};
  std::unique_ptr<SafetensorsWriter> writer;
  if (tensors.receives()) {
    std::vector<TensorInfo> infos;
    for_each_parameter(units, [&](const Unit& unit, std::size_t i) {
      TensorInfo info;
      info.name = unit.parameters[i].hf_name;
      info.type = std::is_same_v<A, double> ? "F64" : "F32";
      info.shape = file_shape(unit.parameters[i]);
      infos.push_back(info);
    });
    for (const RouterBias& bias : routers) {
      TensorInfo info;
      info.name = bias.hf_name;
      info.type = std::is_same_v<A, double> ? "F64" : "F32";
      info.shape = {biases_of->E()};
      infos.push_back(info);
    }
    writer = std::make_unique<SafetensorsWriter>(file, infos, metadata);
  }
  try {
    for_each_parameter(units, [&](const Unit& unit, std::size_t i) {
      const auto values = tensors.collect(unit, i, source, stream);
      if (writer)
        writer->write(unit.parameters[i].hf_name,
                      std::as_bytes(std::span<const A>(in_file_order(values, unit.parameters[i]))));
    });
    for (const RouterBias& bias : routers) {
      if (!writer) break;
      const auto begin = biases.begin() + static_cast<std::ptrdiff_t>(bias.layer * biases_of->E());
      const std::vector<A> values(begin, begin + static_cast<std::ptrdiff_t>(biases_of->E()));
      writer->write(bias.hf_name, std::as_bytes(std::span<const A>(values)));
    }
    if (writer) writer->finish(tensors.heartbeat());
  } catch (...) {
    writer.reset();  // here: what nobody catches unwinds nothing (core/last_words.hpp)
    throw;
  }
}

template <class T>
double compare_gradients(const std::string& file, const std::vector<Unit>& units, WholeTensors<T>& tensors,
                         Stream& stream) {
  struct Deviation {
    double difference, largest;
  };
  std::vector<Deviation> deviations;
  bool comparable = true;
  std::unique_ptr<TensorFiles> files;
  if (tensors.receives()) files = std::make_unique<TensorFiles>(TensorFiles::open(file));
  for_each_parameter(units, [&](const Unit& unit, std::size_t i) {
    const Parameter& p = unit.parameters[i];
    const auto values = in_file_order(tensors.collect(unit, i, TensorSource::gradients, stream), p);
    if (!files) return;
    if (!problem_of(*files, p).empty()) {
      comparable = false;
      return;
    }
    std::vector<double> reference(values.size());
    files->read(*find_tensor(*files, p), std::span<double>(reference));
    Deviation d{0, 0};
    for (std::size_t k = 0; k < values.size(); ++k) {
      const double difference = std::abs(static_cast<double>(values[k]) - reference[k]);
      d.difference = difference > d.difference || std::isnan(difference) ? difference : d.difference;
      d.largest = std::max(d.largest, std::abs(reference[k]));
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

#define FORGE_INSTANTIATE(T)                                                                                      \
  template void load_hf_tensors<T>(const std::string&, ParameterStorage<T>&, Stream&, Heartbeat*);                \
  template void write_hf_tensors<T>(const std::string&, const std::vector<Unit>&, WholeTensors<T>&, TensorSource, \
                                    Stream&, const std::map<std::string, std::string>&, const ModelSpec*,         \
                                    const std::vector<double>&);                                                  \
  template double compare_gradients<T>(const std::string&, const std::vector<Unit>&, WholeTensors<T>&, Stream&);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
