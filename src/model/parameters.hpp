#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/normal.hpp"
#include "core/to_size.hpp"
#include "model/spec.hpp"

namespace forge {

// Where a parameter stands in its unit, from the front on. Matrices (out, in) stand before vectors, whose gradients are
// taken with B, without a product of their own, and summed over the step in place; parameters that every tp rank has
// whole stand together.
enum class Section { split_matrices, matrices, output_biases, stream_norms, vectors, split_vectors };
constexpr bool holds_vectors(Section section) {
  return section >= Section::output_biases;
}

enum class Initial { zeros, ones, normal, uniform, log_uniform };

// How ranks share a tensor's rows or columns: tp ranks of dense units, etp ranks of experts. Each has a piece of
// whole granules; where the granules don't divide, the last pieces end early, or are empty.
struct Split {
  int dim = 0;               // 0: rows, 1: columns
  std::int64_t granule = 1;  // rows or columns of a head
  bool copies = false;       // with fewer granules than ranks, each has one, together with its neighbours
  std::int64_t begin = 0;    // where the rows or columns shared so begin, …
  std::int64_t extent = 0;   // … and their number; 0: up to the end
};

// One tensor of the checkpoint.
struct Parameter {
  std::string name;            // forge's own, stable: the key of its initial values, and of checkpoints
  std::string hf_name;         // in the family's Hugging Face checkpoints; empty: they don't have it
  bool hf_transposed = false;  // stored (in, out) there
  double hf_offset = 0;        // its values there are less by this
  std::int64_t hf_packed = 0;  // experts whose values stand in one tensor there (packed_place); 0: each has its own
  Section section;
  // The member of its layer's struct that it belongs to: the tensors of one member follow each other without a gap, q,
  // k and v as one matrix of qkv_columns rows, gate and up as one of up_columns rows.
  std::size_t group;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> hf_shape;  // there, of as many elements in the same order; empty: shape
  // Pieces of each part of `split` there: the first of every part, the second of every part, … (row_runs); 0: as here.
  std::int64_t hf_groups = 0;
  std::vector<Split> split;  // of one part after the other; empty: every tp rank holds the whole tensor
  std::int64_t expert = -1;  // of an expert: its number
  std::int64_t experts = 0;  // … and the number of all
  Initial initial = Initial::zeros;
  double std = 0;  // of Initial::normal; the bound of uniform, and of log_uniform's logarithms

  std::int64_t elements() const;
  // Weight decay follows the rank of the checkpoint's tensor.
  bool decays() const { return shape.size() >= 2; }
};

// The tensors of a unit. All copies of a unit share one constant list: for experts it is long.
class ParameterList {
 public:
  ParameterList() = default;
  ParameterList(std::vector<Parameter> list) : list_(std::make_shared<const std::vector<Parameter>>(std::move(list))) {}

  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }
  std::size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  const Parameter& operator[](std::size_t i) const { return all()[i]; }
  const Parameter& at(std::size_t i) const { return all().at(i); }
  const Parameter& front() const { return all().front(); }
  const Parameter& back() const { return all().back(); }
  const std::vector<Parameter>& all() const {
    static const std::vector<Parameter> none;
    return list_ ? *list_ : none;
  }

 private:
  std::shared_ptr<const std::vector<Parameter>> list_;
};

enum class UnitKind { token_table, position_table, block, experts, output, final_norm, adapter, expert_adapter };
std::string_view name_of(UnitKind kind);
constexpr bool is_adapter(UnitKind kind) {
  return kind == UnitKind::adapter || kind == UnitKind::expert_adapter;
}
// Whether an expert has its own part of the unit.
constexpr bool is_of_experts(UnitKind kind) {
  return kind == UnitKind::experts || kind == UnitKind::expert_adapter;
}

// The members of a unit's structs as a rank lays them out, in the order of their lists.
struct ParameterGroup {
  std::int64_t offset = -1;  // in the unit's flat buffer
  std::int64_t elements = 0;
  bool is_vector = false;
};

// Parameters that are gathered, reduced and updated together. How a rank lays them out: layout/local_units.hpp.
struct Unit {
  UnitKind kind;
  std::int64_t layer = -1;  // of a block, its experts or the adapters of either
  std::string name;
  ParameterList parameters;
  std::size_t groups = 0;  // members of its list
  bool frozen = false;     // train.frozen: no gradient is computed, and nothing is updated
};

// A router's bias (E): chooses experts, has no gradient, and is no parameter of the optimizer.
struct RouterBias {
  std::int64_t layer;
  std::string name, hf_name;
};

// Rows that follow each other both in a parameter and in the files: from `own` on here, from `there` on there.
struct RowRun {
  std::int64_t own, there, rows;
};
// Those of a parameter (hf_groups), in the files' order.
std::vector<RowRun> row_runs(const Parameter& parameter);

// Tensors without padding, as "a model of N parameters" counts them. A tied matrix counts once.
std::int64_t parameter_count(const std::vector<Unit>& units);

// Values of a parameter's elements at the start: the same on any layout.
NormalNumbers initial_values(std::uint64_t seed, const Parameter& parameter);
// Values of a parameter that is drawn from a uniform distribution.
UniformNumbers uniform_values(std::uint64_t seed, const Parameter& parameter);

}  // namespace forge
