#include "checkpoint/hf_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "checkpoint/hf_source.hpp"
#include "checkpoint/new_rows.hpp"
#include "config/report.hpp"
#include "core/in_parallel.hpp"
#include "core/to_size.hpp"
#include "hf/adapter_config.hpp"
#include "hf/families.hpp"
#include "hf/fp8/block_scales.hpp"
#include "hf/fp8/quantization.hpp"
#include "nn/units.plan.hpp"

namespace forge {

namespace {

template <class A>
std::vector<A> transposed(const std::vector<A>& from, std::int64_t rows, std::int64_t columns, int threads = 1) {
  std::vector<A> to(from.size());
#pragma omp parallel for num_threads(threads)
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[to_size(j * rows + i)] = from[to_size(i * columns + j)];
  return to;
}

template <class F>
void for_each_parameter(const std::vector<Unit>& units, F f) {
  for (const Unit& unit : units)
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) f(unit, i);
}

// Ranks that receive nothing have no values.
template <class A>
std::vector<A> in_file_order(std::vector<A> values, const Parameter& p) {
  if (values.empty()) return values;
  if (p.hf_groups > 0) return in_file_rows(values, row_runs(p));
  return p.hf_transposed ? transposed(values, p.shape[0], p.shape[1]) : values;
}

// Values of a rank's parameters from the files, tensor by tensor, each by all threads.
template <class A>
class HfReader {
 public:
  // `adapter`: of PEFT's files.
  HfReader(const std::string& directory, const ModelSpec& spec, std::uint64_t seed, bool adapter, int threads)
      : threads_(threads),
        model_(spec.options),
        seed_(seed),
        directory_(directory),
        files_(TensorFiles::open(directory, adapter ? adapter_stem : "model")),
        coded_(!adapter && has_quantization(directory)) {
    if (spec.options.tied_embeddings && !adapter) head_ = find_tensor(files_, head_name);
  }

  // A tensor of all experts is told of once.
  void check(const LocalUnit& unit, Report& report) {
    for (const Parameter& p : unit.parameters) {
      const HfPlace place = find_values(files_, p);
      std::string problem = problem_of(files_, has_new_rows(unit) ? without_new_rows(p) : p);
      if (problem.empty()) problem = type_problem(place);
      if (problem.empty() || !told_.insert(problem).second) continue;
      report.add(place.tensor ? "" : directory_, problem);
    }
    if (!head_ || unit.kind != UnitKind::token_table) return;
    const Parameter& table = unit.parameters.front();
    if (head_->shape != (has_new_rows(unit) ? without_new_rows(table) : table).shape)
      report.add("", two_heads(table, "another shape"));
  }

  // Elements of a whole tensor, of one that the files have the other way round all.
  void read(const LocalUnit& unit, const Parameter& p, const Range& elements) {
    const HfPlace place = find_values(files_, p);
    if (p.hf_packed > 0) {
      if (std::exchange(whole_, &p) == &p) return;
      first_ = 0;
      values_ = read_packed<A>(files_, place, p);
      return count_bytes(*place.tensor, values_.size());
    }
    const bool turned = p.hf_transposed || place.row_length > 0, again = turned && whole_ == &p;
    whole_ = turned ? &p : nullptr;
    if (again) return;
    const Range range = turned ? Range{0, p.elements()} : elements;
    first_ = range.begin;
    values_.resize(to_size(range.size()));
    // Elements of the range that the files have.
    const std::int64_t in_files = has_new_rows(unit) ? without_new_rows(p).elements() : p.elements();
    const std::span<A> there =
        std::span(values_).first(to_size(std::clamp<std::int64_t>(in_files - range.begin, 0, range.size())));
    if (place.row_length > 0)
      for (std::int64_t row = 0; row < p.shape[1]; ++row)
        read(*place.tensor, there.subspan(to_size(row * p.shape[0]), to_size(p.shape[0])),
             place.first + row * place.row_length);
    else
      for (const RowRun& run : element_runs(p, {range.begin, range.begin + std::ssize(there)}))
        read(*place.tensor, there.subspan(to_size(run.own - range.begin), to_size(run.rows)), place.first + run.there);
    count_bytes(*place.tensor, there.size());
    if (head_ && unit.kind == UnitKind::token_table) compare_head(p, there, range.begin);
    if (there.size() < values_.size()) add_new_rows(p, *place.tensor, there.size());
    if (turned) values_ = transposed(values_, p.shape[1], p.shape[0], threads_);
    for (std::size_t i = 0; p.hf_offset != 0 && i < values_.size(); ++i) values_[i] += static_cast<A>(p.hf_offset);
  }
  A value(std::int64_t element) const { return values_[to_size(element - first_)]; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::string type_problem(const HfPlace& place) const {
    if (place.scales) return "";
    if (place.packed && place.tensor->type == code_type)
      return files_.file_of(*place.tensor) + ": tensor " + place.tensor->name +
             " has all experts in FP8; legal: F64 | F32 | BF16 | F16, or a tensor for each expert";
    return weight_problem(files_, *place.tensor, coded_);
  }
  std::string two_heads(const Parameter& table, const std::string& what) const {
    return "model.hf " + directory_ + ": config.json says tie_word_embeddings: true, but the files have " +
           head_->name + " with " + what + " than " + table.hf_name +
           "; legal: tie_word_embeddings: false in config.json, which takes that head, or files without it";
  }
  // Whether the unit is a table with more rows than the files have (model.new_rows).
  bool has_new_rows(const LocalUnit& unit) const {
    return model_.base_vocabulary > 0 && (unit.kind == UnitKind::token_table || unit.kind == UnitKind::output);
  }
  Parameter without_new_rows(Parameter table) const {
    table.shape[0] = model_.base_vocabulary;
    return table;
  }
  // The values behind the first ones, which the files have.
  void add_new_rows(const Parameter& table, const TensorInfo& tensor, std::size_t first) {
    if (extended_ != &table)
      new_rows_ = std::make_unique<NewRowValues>(
          model_, table, seed_,
          [&](std::int64_t begin, std::span<double> to) {
            read(tensor, to, begin);
            count_bytes(tensor, to.size());
          },
          threads_);
    extended_ = &table;
    const std::int64_t count = std::ssize(values_);
#pragma omp parallel for num_threads(threads_)
    for (std::int64_t i = static_cast<std::int64_t>(first); i < count; ++i)
      values_[to_size(i)] = static_cast<A>((*new_rows_)(first_ + i));
  }
  void count_bytes(const TensorInfo& tensor, std::size_t elements) {
    bytes_ += tensor.type == "U8" ? elements / 2 : elements * tensor.bytes / to_size(tensor.elements());
  }
  template <class V>
  void read(const TensorInfo& tensor, std::span<V> to, std::int64_t first) const {
    constexpr std::size_t part = std::size_t{1} << 17;
    const auto read_part = [&](std::size_t i) {
      read_weight(files_, tensor, to.subspan(i * part, std::min(part, to.size() - i * part)),
                  first + static_cast<std::int64_t>(i * part));
    };
    in_parallel((to.size() + part - 1) / part, read_part, threads_);
  }
  // `values`: of the table, from element `first` on.
  void compare_head(const Parameter& table, std::span<const A> values, std::int64_t first) {
    std::vector<A> head(values.size());
    read(*head_, std::span(head), first);
    count_bytes(*head_, head.size());
    const auto differ = [](A a, A b) { return a != b && !(std::isnan(a) && std::isnan(b)); };
    for (std::size_t i = 0; i < head.size(); ++i)
      if (differ(head[i], values[i])) throw BadInput(two_heads(table, "other values"));
  }

  int threads_;
  ModelDeck model_;
  std::uint64_t seed_;  // of new rows
  std::string directory_;
  TensorFiles files_;
  bool coded_;
  const TensorInfo* head_ = nullptr;  // of a model whose head is its embedding, where the files have one all the same
  std::vector<A> values_;
  std::int64_t first_ = 0;  // in the tensor
  const Parameter* whole_ = nullptr;
  std::unique_ptr<NewRowValues> new_rows_;  // of the table below
  const Parameter* extended_ = nullptr;
  std::set<std::string> told_;
  std::uint64_t bytes_ = 0;
};

std::vector<double> read_router_biases(const std::string& directory, const ModelSpec& spec) {
  const TensorFiles files = TensorFiles::open(directory);
  const std::int64_t experts = spec.E();
  std::vector<double> values(to_size((spec.L() + spec.options.mtp_depth) * experts), 0);
  Report report;
  for (const RouterBias& bias : router_biases(spec)) {  // of the layers with experts, which may be none
    const TensorInfo* info = find_tensor(files, bias.hf_name);
    const std::vector<std::int64_t> shape{experts};
    if (!info && hf_family(spec.options.family).router_biases)
      report.add(directory, "tensor " + bias.hf_name + " " + shape_text(shape) + " is missing");
    else if (info && info->shape != shape)
      report.add("", files.file_of(*info) + ": tensor " + info->name + " has shape " + shape_text(info->shape) +
                         ", config.json asks for " + shape_text(shape));
    else if (info)
      files.read(*info, std::span<double>(values).subspan(to_size(bias.layer * experts), to_size(experts)));
  }
  report.throw_if_any("model.hf " + directory);
  return values;
}

}  // namespace

Replicas replicas_of(Mesh& mesh) {
  return [&mesh](const LocalUnit& unit) {
    const bool experts = unit.is_experts();
    const Group group = unit.zero.shards_state() ? experts ? Group::expert_gradient_replicas : Group::gradient_replicas
                        : experts                ? Group::expert_gradients
                                                 : Group::gradients;
    return &mesh.of(group);
  };
}

namespace {

// Of the units that are adapters, or of all others.
template <class T>
std::uint64_t load_units(const std::string& directory, const ModelSpec& spec, std::uint64_t seed, bool adapters,
                         ParameterStorage<T>& storage, Stream& stream, const Replicas& replicas, Heartbeat* heartbeat) {
  using A = acc_t<T>;
  std::vector<Communicator*> others;
  std::unique_ptr<HfReader<A>> reader;
  Report report;
  const auto wanted = [&](const LocalUnit& unit) { return is_adapter(unit.kind) == adapters; };
  for (const LocalUnit& unit : storage.units()) {
    Communicator* const group = replicas ? replicas(unit) : nullptr;
    others.push_back(group && group->size() > 1 ? group : nullptr);
    if (!wanted(unit) || (others.back() && others.back()->rank() > 0)) continue;
    if (!reader) reader = std::make_unique<HfReader<A>>(directory, spec, seed, adapters, stream.threads());
    reader->check(unit, report);
  }
  report.throw_if_any((adapters ? "adapter.load " : "model.hf ") + directory);
  for (std::size_t u = 0; u < storage.size(); ++u) {
    Communicator* const group = others[u];
    const LocalUnit& unit = storage.local(u);
    if (!wanted(unit)) continue;
    if (!group || group->rank() == 0)
      storage.fill(stream, u, [&](const Parameter& p, const Range& elements) {
        reader->read(unit, p, elements);
        if (heartbeat) heartbeat->beat();
        return [&](std::int64_t element) { return reader->value(element); };
      });
    if (!group) continue;
    storage.share(stream, u, *group);
    if (heartbeat) heartbeat->beat();
  }
  return reader ? reader->bytes() : 0;
}

}  // namespace

template <class T>
std::uint64_t load_hf_tensors(const std::string& directory, const ModelSpec& spec, std::uint64_t seed,
                              ParameterStorage<T>& storage, Stream& stream, const Replicas& replicas,
                              Heartbeat* heartbeat) {
  return load_units(directory, spec, seed, false, storage, stream, replicas, heartbeat);
}

template <class T>
std::uint64_t load_hf_adapter(const std::string& directory, const ModelSpec& spec, ParameterStorage<T>& storage,
                              Stream& stream, const Replicas& replicas, Heartbeat* heartbeat) {
  check_adapter_config(directory, spec.options);
  check_adapter_tensors(directory, spec);
  return load_units(directory, spec, 0, true, storage, stream, replicas, heartbeat);
}

std::vector<double> load_router_biases(const std::string& directory, const ModelSpec& spec, Communicator* ranks) {
  if (!spec.options.router_bias) return {};
  if (!ranks) return read_router_biases(directory, spec);
  std::string bytes;
  if (ranks->rank() == 0) {
    const std::vector<double> read = read_router_biases(directory, spec);
    bytes.assign(reinterpret_cast<const char*>(read.data()), read.size() * sizeof(double));
  }
  ranks->broadcast_host(bytes, 0);
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

namespace {

// Writes an expert's block where its last parameter has come.
template <class A>
void add_to_block(SafetensorsWriter& writer, std::vector<A>& block, const std::vector<A>& values, const Parameter& p) {
  const PackedPlace place = packed_place(p);
  block.resize(to_size(place.block));
  put_packed<A>(values, p, block);
  if (place.last)
    writer.write(place.name, std::as_bytes(std::span<const A>(block)), to_size(p.expert * place.block) * sizeof(A));
}

}  // namespace

template <class T>
void write_hf_tensors(const std::string& file, const std::vector<Unit>& units, WholeTensors<T>& tensors,
                      TensorSource source, Stream& stream, const std::map<std::string, std::string>& metadata,
                      const ModelSpec* biases_of, const std::vector<double>& biases) {
  using A = acc_t<T>;
  const std::vector<RouterBias> routers =
      biases_of && !biases.empty() ? router_biases(*biases_of) : std::vector<RouterBias>{};
  const auto left_out = [&](const Unit& unit) { return unit.frozen && source == TensorSource::gradients; };
  std::unique_ptr<SafetensorsWriter> writer;
  std::vector<A> block;  // of an expert whose parameters stand in one tensor with the others'
  if (tensors.receives()) {
    std::vector<TensorInfo> infos;
    const char* const type = std::is_same_v<A, double> ? "F64" : "F32";
    for_each_parameter(units, [&](const Unit& unit, std::size_t i) {
      if (left_out(unit)) return;
      const Parameter& p = unit.parameters[i];
      if (p.hf_packed == 0) return infos.push_back({p.hf_name, type, file_shape(p)});
      const PackedPlace place = packed_place(p);
      if (infos.back().name != place.name) infos.push_back({place.name, type, place.shape});
    });
    for (const RouterBias& bias : routers) infos.push_back({bias.hf_name, type, {biases_of->E()}});
    writer = std::make_unique<SafetensorsWriter>(file, infos, metadata);
  }
  try {
    for_each_parameter(units, [&](const Unit& unit, std::size_t i) {
      if (left_out(unit)) return;
      const Parameter& p = unit.parameters[i];
      auto values = tensors.collect(unit, i, source, stream);
      if (source == TensorSource::parameters && p.hf_offset != 0)
        for (A& value : values) value -= static_cast<A>(p.hf_offset);
      if (p.hf_packed > 0) return writer ? add_to_block(*writer, block, values, p) : void();
      if (writer) writer->write(p.hf_name, std::as_bytes(std::span<const A>(in_file_order(values, p))));
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

// Gradients are those of units that are trained.
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
    if (unit.frozen) return;
    const Parameter& p = unit.parameters[i];
    auto values = tensors.collect(unit, i, TensorSource::gradients, stream);
    if (p.hf_packed == 0) values = in_file_order(std::move(values), p);
    if (!files) return;
    const HfPlace place = find_values(*files, p);
    const bool packed = p.hf_packed > 0;
    if (!problem_of(*files, p).empty() || (place.row_length > 0 && !packed)) {
      comparable = false;
      return;
    }
    std::vector<double> reference = packed ? read_packed<double>(*files, place, p) : std::vector<double>(values.size());
    if (!packed) files->read(*place.tensor, std::span<double>(reference), place.first);
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

FORGE_INSTANTIATE_FUNCTION(load_hf_tensors);
FORGE_INSTANTIATE_FUNCTION(load_hf_adapter);
FORGE_INSTANTIATE_FUNCTION(write_hf_tensors);
FORGE_INSTANTIATE_FUNCTION(compare_gradients);

}  // namespace forge
