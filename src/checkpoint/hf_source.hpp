#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "hf/safetensors.hpp"
#include "model/parameters.hpp"

namespace forge {

// Where a parameter's values stand in the files of a Hugging Face directory.
struct HfPlace {
  const TensorInfo* tensor = nullptr;  // null: nowhere
  std::int64_t first = 0;              // its first element there
  bool packed = false;                 // a part of the tensor of all experts of a layer
  // For a packed matrix (m, n) that stands as (n, m): the rows' length there, of which its columns are m; 0: as it is.
  std::int64_t row_length = 0;
  const TensorInfo* scales = nullptr;  // of a tensor in MXFP4 (hf/mxfp4.hpp), whose rows are the matrices' own
};

// Where an expert's parameter stands in a tensor of all of them (Parameter::hf_packed): as gpt-oss's files have them,
// gate_up_proj (E, C, 2 F), in which the columns of gates and ups take turns, down_proj (E, F, C), and their biases
// gate_up_proj_bias (E, 2 F) and down_proj_bias (E, C). Each expert's part is a block; entry (i, j) of a matrix (m, n),
// or i of a vector, is its element i · step + j · row_length, from `first` on.
struct PackedPlace {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t block, first, step, row_length;
  bool last;  // no other parameter of the expert follows in the block

  std::int64_t at(std::int64_t i, std::int64_t j) const { return first + i * step + j * row_length; }
};
PackedPlace packed_place(const Parameter& parameter);
// The values of a parameter that stands so, in its own order.
template <class A>
std::vector<A> read_packed(const TensorFiles& files, const HfPlace& place, const Parameter& parameter);
// values, in the parameter's order, to their places in its expert's block.
template <class A>
void put_packed(const std::vector<A>& values, const Parameter& parameter, std::span<A> block);

// Under its name (find_tensor); of experts' matrices, in mlp.experts.gate_up_proj (E, 2 F, C), gates before ups, and
// mlp.experts.down_proj (E, C, F), as transformers 5 has them in memory, or with (C, 2 F) and (F, C) of each expert, as
// Qwen3-VL's files have them.
HfPlace find_values(const TensorFiles& files, const Parameter& parameter);

// A tensor by its name; without the prefix that all names of its family share, as models without a head are saved; or
// behind the prefix of a text model beside an image model; null: there is none.
const TensorInfo* find_tensor(const TensorFiles& files, const std::string& name);
// The name of the output matrix in every family.
inline constexpr const char* head_name = "lm_head.weight";

// Shape in the files: (in, out) where the family stores it so.
std::vector<std::int64_t> file_shape(const Parameter& parameter);

// Values of the parameter, in its own order, in that of the files: row by row (row_runs).
template <class V>
std::vector<V> in_file_rows(const std::vector<V>& values, const std::vector<RowRun>& runs) {
  std::vector<V> there(values.size());
  const std::int64_t rows = runs.back().there + runs.back().rows, width = std::ssize(values) / rows;
  for (const RowRun& run : runs)
    std::copy_n(values.begin() + run.own * width, run.rows * width, there.begin() + run.there * width);
  return there;
}

// "" or why the files don't have the parameter's values: missing, or of another shape.
std::string problem_of(const TensorFiles& files, const Parameter& parameter);

// The tensors of a directory that a model reads.
struct HfSummary {
  std::int64_t tensors = 0;  // that it reads
  std::string unread;        // "" or a sentence that names tensors that mean something and that it doesn't read
};
HfSummary summary_of(const std::string& directory, const ModelSpec& spec);

}  // namespace forge
