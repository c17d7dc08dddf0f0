#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "config/state_spec.hpp"
#include "core/to_size.hpp"

// The deck's optimizers, and the states of each. A new one stands here, in a file of its own in optim/,
// and in the table of optim/rule.hpp.

namespace forge {

enum class OptimizerName : int { adamw, lion, sgd, schedule_free, muon, normuon, adafactor, soap };

// The states of each optimizer, in the order in which updates read them: those that shards keep come first.
namespace optimizer_states {

inline constexpr StateSpec adamw[] = {{.name = "first_moment", .torch = "exp_avg"},
                                      {.name = "second_moment", .torch = "exp_avg_sq"}};
inline constexpr StateSpec lion[] = {{.name = "first_moment"}};
inline constexpr StateSpec sgd[] = {{.name = "momentum", .torch = "momentum_buffer"}};
// Averages are made of the weights and the lead.
inline constexpr StateSpec schedule_free[] = {{.name = "second_moment"}, {.name = "lead"}};

// Beside whole matrices: tables, the output matrix and vectors have AdamW.
inline constexpr StateSpec first_of_others{.name = "first_moment", .of = KeptOf::others, .torch = "exp_avg"};
inline constexpr StateSpec second_of_others{.name = "second_moment", .of = KeptOf::others, .torch = "exp_avg_sq"};
inline constexpr StateSpec muon[] = {
    {.name = "momentum", .of = KeptOf::whole_matrices, .torch = "momentum_buffer"}, first_of_others, second_of_others};
inline constexpr StateSpec normuon[] = {{.name = "momentum", .of = KeptOf::whole_matrices},
                                        first_of_others,
                                        second_of_others,
                                        {.name = "second_moment_of_rows",
                                         .of = KeptOf::whole_matrices,
                                         .shape = StateShape::rows,
                                         .owner = StateOwner::matrix_owner,
                                         .type = StoredAs::accumulation}};

// A state that the owner of a matrix keeps with SOAP.
constexpr StateSpec rotated(const char* name, StateShape shape, const char* suffix) {
  return {.name = name,
          .of = KeptOf::whole_matrices,
          .shape = shape,
          .owner = StateOwner::matrix_owner,
          .type = StoredAs::accumulation,
          .suffix = suffix};
}
// layout/rotated_state.hpp has the places of those that owners keep.
inline constexpr StateSpec soap[] = {first_of_others,
                                     second_of_others,
                                     rotated("first_moment", StateShape::whole, ""),
                                     rotated("bases", StateShape::whole, ".second_moment"),
                                     rotated("bases", StateShape::square_of_rows, ".covariance_of_rows"),
                                     rotated("bases", StateShape::square_of_rows, ".rows"),
                                     rotated("bases", StateShape::square_of_columns, ".covariance_of_columns"),
                                     rotated("bases", StateShape::square_of_columns, ".columns")};

// Second moments of a matrix are a row's times a column's.
inline constexpr StateSpec adafactor[] = {
    {.name = "second_moment", .of = KeptOf::vectors, .type = StoredAs::accumulation, .torch = "variance"},
    {.name = "second_moment_of_rows",
     .shape = StateShape::rows,
     .owner = StateOwner::sharers,
     .type = StoredAs::accumulation,
     .torch = "row_var"},
    {.name = "second_moment_of_columns",
     .shape = StateShape::columns,
     .owner = StateOwner::sharers,
     .type = StoredAs::accumulation,
     .torch = "col_var"}};

}  // namespace optimizer_states

// The work of the owner of a whole matrix (layout/whole_matrices.hpp): none, where elements are updated one by one;
// Newton and Schulz's iteration; or a rotated update (optim/rotation.hpp).
enum class MatrixWork { none, newton_schulz, rotation };

struct OptimizerRow {
  const char* word = nullptr;
  std::span<const StateSpec> states = {};
  // The deck's keys that not every optimizer reads: any other of them is refused.
  std::array<const char*, 8> keys = {};
  MatrixWork matrix_work = MatrixWork::none;
  // The weights to use are averages of the trained ones: validation, saving and export see the averages. They are made
  // with the second state (optim/schedule_free.cpp); the rate is constant behind warm-up.
  bool averages = false;

  constexpr bool keeps(StateOwner owner) const {
    return std::any_of(states.begin(), states.end(), [=](const StateSpec& state) { return state.owner == owner; });
  }
  // An update needs the whole matrix. Tables, the output matrix and vectors have AdamW.
  constexpr bool whole_matrices() const { return matrix_work != MatrixWork::none; }
  constexpr bool rotates() const { return matrix_work == MatrixWork::rotation; }
  constexpr bool factored() const { return keeps(StateOwner::sharers); }
  // Ranks that hold parts of a matrix work on its update together.
  constexpr bool shares_matrices() const { return whole_matrices() || factored(); }
  // torch.optim has it, and names for its states (checkpoint/torch_optimizer.hpp).
  constexpr bool in_torch() const {
    return std::all_of(states.begin(), states.end(), [](const StateSpec& state) { return state.torch != nullptr; });
  }
};

// In the order of the enumerators.
inline constexpr std::array optimizer_table{
    OptimizerRow{.word = "adamw",
                 .states = optimizer_states::adamw,
                 .keys = {"beta1", "beta2", "epsilon", "moments", "master_weights", "gradients"}},
    OptimizerRow{.word = "lion",
                 .states = optimizer_states::lion,
                 .keys = {"beta1", "beta2", "moments", "master_weights", "gradients"}},
    OptimizerRow{
        .word = "sgd", .states = optimizer_states::sgd, .keys = {"momentum", "moments", "master_weights", "gradients"}},
    OptimizerRow{.word = "schedule_free",
                 .states = optimizer_states::schedule_free,
                 .keys = {"beta1", "beta2", "epsilon"},
                 .averages = true},
    OptimizerRow{.word = "muon",
                 .states = optimizer_states::muon,
                 .keys = {"muon_scale", "adam_learning_rate", "beta1", "beta2", "epsilon", "moments", "master_weights",
                          "gradients"},
                 .matrix_work = MatrixWork::newton_schulz},
    OptimizerRow{.word = "normuon",
                 .states = optimizer_states::normuon,
                 .keys = {"adam_learning_rate", "beta1", "beta2", "epsilon", "moments", "master_weights", "gradients"},
                 .matrix_work = MatrixWork::newton_schulz},
    OptimizerRow{.word = "adafactor", .states = optimizer_states::adafactor},
    OptimizerRow{.word = "soap",
                 .states = optimizer_states::soap,
                 .keys = {"adam_learning_rate", "beta1", "beta2", "epsilon", "soap_basis_every_steps",
                          "soap_largest_side", "master_weights", "gradients"},
                 .matrix_work = MatrixWork::rotation}};
constexpr const OptimizerRow& row_of(OptimizerName name) {
  return optimizer_table[to_size(name)];
}

// The shards' states come first, each a number of a weight; states of other owners have the accumulation type.
constexpr bool in_order(const OptimizerRow& row) {
  const auto of_shards = [](const StateSpec& state) { return state.owner == StateOwner::shards; };
  return row.states.size() <= most_states && std::is_partitioned(row.states.begin(), row.states.end(), of_shards) &&
         std::all_of(row.states.begin(), row.states.end(), [&](const StateSpec& state) {
           return of_shards(state) ? state.shape == StateShape::whole : state.type == StoredAs::accumulation;
         });
}
static_assert(std::all_of(optimizer_table.begin(), optimizer_table.end(), in_order));

// The words of those that torch.optim has.
inline std::string torch_optimizers() {
  std::string words;
  for (const OptimizerRow& row : optimizer_table)
    if (row.in_torch()) words += (words.empty() ? "" : ", ") + std::string(row.word);
  return words;
}

}  // namespace forge
