#include "checkpoint/torch_optimizer.hpp"

#include <cstring>
#include <map>
#include <span>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/hf_source.hpp"
#include "checkpoint/storage_state.hpp"
#include "checkpoint/tensor_parts.hpp"
#include "config/family.hpp"
#include "config/optimizer_table.hpp"
#include "config/read.hpp"
#include "config/report.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "hf/config.hpp"
#include "hf/tensor_directory.hpp"
#include "model/buffers.hpp"
#include "model/update_rule.hpp"
#include "nn/units.plan.hpp"

namespace forge {

namespace {

// A tensor of PyTorch's, and where it stands in checkpoints of forge.
struct TorchTensor {
  std::string name;
  std::string stored;
  Extents stored_shape;
  Box box;        // of the stored tensor
  Extents own;    // that box without the expert's number
  Extents shape;  // in the file: own, transposed, or with an extent of 1 where a dimension was summed
  bool transposed = false;
  std::vector<RowRun> runs = {};  // of rows in another order there; empty: in the same
};

// A state, and what PyTorch calls it.
struct TorchKey {
  const StateSpec* state;
  const char* key;
};

bool is_kept(const StateSpec& state, const Parameter& p, const UpdateRule& rule) {
  if (state.is_line()) return p.shape.size() == 2;
  switch (state.of) {
    case KeptOf::all:
      return true;
    case KeptOf::whole_matrices:
      return rule.whole;
    case KeptOf::others:
      return !rule.whole;
    case KeptOf::vectors:
      return p.shape.size() != 2;
  }
  return false;
}

std::vector<TorchKey> keys_of(const OptimizerDeck& deck, UnitKind kind, const Parameter& p) {
  const UpdateRule rule = update_rule(deck, kind, p);
  std::vector<TorchKey> keys;
  for (const StateSpec& state : row_of(deck.name).states)
    if (is_kept(state, p, rule)) keys.push_back({&state, state.torch});
  // Rows of PyTorch's are columns of a tensor that is transposed there.
  if (p.hf_transposed && keys.front().state->is_line()) std::swap(keys[0].state, keys[1].state);
  return keys;
}

TorchTensor torch_tensor(const Parameter& p, std::int64_t experts, const TorchKey& key) {
  const StatePlace place = place_of_state(*key.state, p, experts, {0, p.shape[0]});
  TorchTensor t;
  t.name = "state." + p.hf_name + "." + key.key;
  t.stored = place.name;
  t.stored_shape = place.shape;
  t.box = place.box;
  t.own = place.box.extent;
  if (p.expert >= 0) t.own.erase(t.own.begin());
  t.shape = p.shape;
  if (key.state->is_line()) t.shape[key.state->shape == StateShape::rows ? 1 : 0] = 1;
  if (p.hf_transposed) std::swap(t.shape[0], t.shape[1]);
  t.transposed = p.hf_transposed && !key.state->is_line();
  const bool has_rows = !key.state->is_line() || key.state->shape == StateShape::rows;
  if (p.hf_groups > 0 && has_rows) t.runs = row_runs(p);
  return t;
}

struct TorchState {
  std::vector<TorchTensor> tensors;
  std::vector<std::string> steps;  // names of scalars
};

TorchState torch_state(const ModelSpec& spec, const Deck& deck) {
  if (tensor_names(spec.options.family).packed)
    throw BadInput(
        std::string("the optimizer's state of family ") + name_of(spec.options.family) +
        ", whose files have one tensor for the experts of a layer, is neither written as PyTorch's nor read");
  TorchState state;
  std::vector<Unit> units = parameter_units(spec);
  freeze(deck.train.frozen, units);
  std::erase_if(units, [](const Unit& unit) { return unit.frozen; });
  for (const Unit& unit : units)
    for (const Parameter& p : unit.parameters) {
      const auto keys = keys_of(deck.optimizer, unit.kind, p);
      for (const TorchKey& key : keys) state.tensors.push_back(torch_tensor(p, spec.E(), key));
      if (std::string_view(keys[0].key) != "momentum_buffer") state.steps.push_back("state." + p.hf_name + ".step");
    }
  return state;
}

std::string type_name(DType type) {
  return type == DType::f64 ? "F64" : type == DType::f32 ? "F32" : "BF16";
}

template <class E>
void transpose(const std::byte* from, std::int64_t rows, std::int64_t columns, std::byte* to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      std::memcpy(to + to_size(j * rows + i) * sizeof(E), from + to_size(i * columns + j) * sizeof(E), sizeof(E));
}

std::vector<std::byte> transposed(const std::vector<std::byte>& from, std::int64_t rows, std::int64_t columns,
                                  std::size_t size) {
  std::vector<std::byte> to(from.size());
  const auto run = size == 8   ? transpose<std::uint64_t>
                   : size == 4 ? transpose<std::uint32_t>
                               : transpose<std::uint16_t>;
  run(from.data(), rows, columns, to.data());
  return to;
}

// The tensor's bytes as the file has them.
std::vector<std::byte> bytes_in_file(CheckpointFiles& files, const TorchTensor& t) {
  const StoredTensor& stored = *files.find(t.stored);
  std::vector<std::byte> bytes(to_size(t.box.size()) * size_of(stored.type));
  files.read({{t.stored, stored.type, stored.shape, 0, {{t.box, bytes.data()}}}});
  if (!t.runs.empty()) return in_file_rows(bytes, t.runs);
  return t.transposed ? transposed(bytes, t.own[0], t.own[1], size_of(stored.type)) : bytes;
}

std::vector<std::byte> scalar(float value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Every tensor is there with its shape; the updates that all steps agree on.
std::int64_t checked_updates(const TensorFiles& files, const TorchState& state, const std::string& from) {
  Report report;
  const auto find = [&](const std::string& name, const Extents& shape) -> const TensorInfo* {
    const TensorInfo* info = files.find(name);
    if (info && info->shape == shape) return info;
    report.add("", "tensor " + name + " " + shape_text(shape) +
                       (info ? " has shape " + shape_text(info->shape) : std::string(" is missing")));
    return nullptr;
  };
  for (const TorchTensor& t : state.tensors) find(t.name, t.shape);
  double updates = 0;
  for (const std::string& name : state.steps) {
    const TensorInfo* info = find(name, {});
    if (!info) continue;
    double step = 0;
    files.read(*info, {&step, 1});
    if (name == state.steps.front()) updates = step;
    if (!(step >= 0 && step <= 1e15) || step != updates)
      report.add("", name + " is " + std::to_string(step) + ", " + state.steps.front() + " is " +
                         std::to_string(updates) + "; legal: one number of updates, 0 or more");
  }
  report.throw_if_any("checkpoint.optimizer_from " + from);
  return static_cast<std::int64_t>(updates);
}

// Elements of a tensor's rows, in forge's order, converted to E.
template <class E>
class TensorRows {
 public:
  TensorRows(const TensorFiles& files, const TorchTensor& tensor, const Range& rows)
      : first_(rows.begin * width(tensor)) {
    using A = std::conditional_t<std::is_same_v<E, double>, double, float>;
    const bool whole = tensor.transposed || !tensor.runs.empty();
    std::vector<A> read(to_size(whole ? tensor.box.size() : rows.size() * width(tensor)));
    files.read(*files.find(tensor.name), std::span<A>(read), whole ? 0 : first_);
    if (whole) first_ = 0;
    const std::int64_t columns = width(tensor), lines = std::ssize(read) / columns;
    values_.resize(read.size());
    for (const RowRun& run : tensor.runs)
      for (std::int64_t i = 0; i < run.rows * columns; ++i)
        values_[to_size(run.own * columns + i)] = E(read[to_size(run.there * columns + i)]);
    if (!tensor.runs.empty()) return;
    for (std::int64_t i = 0; i < lines; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t here = i * columns + j, there = tensor.transposed ? j * lines + i : here;
        values_[to_size(here)] = E(read[to_size(there)]);
      }
  }

  // The row-major memory of a part of the tensor goes to that of `box`, which contains it; both of the stored tensor.
  void copy(const TorchTensor& tensor, const Box& part, const Box& box, std::byte* to) const {
    Box from = tensor.box;
    const std::size_t lines = tensor.box.offset.size() - tensor.own.size();
    from.offset[lines] = first_ / width(tensor);
    from.extent[lines] = std::ssize(values_) / width(tensor);
    copy_part(part, from, reinterpret_cast<const std::byte*>(values_.data()), box, to, sizeof(E));
  }

 private:
  static std::int64_t width(const TorchTensor& t) { return t.own.size() < 2 ? 1 : t.own[1]; }

  std::int64_t first_;
  std::vector<E> values_;
};

template <class E>
std::vector<std::byte> bytes_of_piece(const TensorFiles& files, const std::vector<const TorchTensor*>& tensors,
                                      const Box& box) {
  std::vector<std::byte> bytes(to_size(box.size()) * sizeof(E));
  for (const TorchTensor* t : tensors) {
    if (!overlap(t->box, box)) continue;
    const Box part = intersection(t->box, box);
    const std::size_t rows = part.offset.size() - t->own.size();
    const TensorRows<E> values(files, *t, {part.offset[rows], part.offset[rows] + part.extent[rows]});
    values.copy(*t, part, box, bytes.data());
  }
  return bytes;
}

}  // namespace

void export_optimizer(const std::string& checkpoint, const std::string& directory, std::uint64_t most_file_bytes) {
  CheckpointFiles source(checkpoint);
  const Deck deck = read_deck(source.facts().deck, checkpoint + ": its deck", {}, Needs::model_only, DeckWriter::forge);
  if (const OptimizerRow& row = row_of(deck.optimizer.name); !row.in_torch())
    throw BadInput("forge export --optimizer: " + checkpoint + " was trained with optimizer.name = " + row.word +
                   ", which torch.optim doesn't have; legal: checkpoints of " + torch_optimizers());
  const ModelSpec spec = resolve_model(deck.model);
  if (const auto obstacle = export_obstacle(spec.options, parameter_units(spec)); !obstacle.empty())
    throw BadInput("forge export: " + obstacle);
  const TorchState state = torch_state(spec, deck);
  std::vector<TensorInfo> infos;
  for (const TorchTensor& t : state.tensors) {
    const StoredTensor* stored = source.find(t.stored);
    if (!stored) throw BadCheckpoint(checkpoint + " has no tensor " + t.stored);
    if (stored->shape != t.stored_shape)
      throw BadCheckpoint(checkpoint + ": tensor " + t.stored + " has shape " + shape_text(stored->shape) + ", not " +
                          shape_text(t.stored_shape));
    infos.push_back({t.name, type_name(stored->type), t.shape});
  }
  for (const std::string& name : state.steps) infos.push_back({name, "F32", {}});
  write_tensor_directory({directory, "optimizer", most_file_bytes}, infos, [&](std::size_t i) {
    return i < state.tensors.size() ? bytes_in_file(source, state.tensors[i])
                                    : scalar(static_cast<float>(source.facts().updates));
  });
}

std::int64_t load_optimizer(const Deck& deck, const std::vector<StateTensor>& state, Stream& stream,
                            Heartbeat* heartbeat) {
  const std::string& from = deck.checkpoint.optimizer_from;
  const TensorFiles files = TensorFiles::open(from, "optimizer");
  const TorchState torch = torch_state(resolve_model(deck.model), deck);
  const std::int64_t updates = checked_updates(files, torch, from);
  std::map<std::string, std::vector<const TorchTensor*>> by_name;
  for (const TorchTensor& t : torch.tensors) by_name[t.stored].push_back(&t);
  for (const StateTensor& tensor : state)
    for (const StatePiece& piece : tensor.pieces) {
      const auto bytes = with_compute_type(tensor.type, [&](auto type) {
        return bytes_of_piece<decltype(type)>(files, by_name.at(tensor.name), piece.box);
      });
      copy_to_device(stream, piece.data, bytes.data(), bytes.size());
      stream.synchronize();
      if (heartbeat) heartbeat->beat();
    }
  return updates;
}

}  // namespace forge
