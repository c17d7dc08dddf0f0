#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// The parts of the model on one pipeline stage.
struct StageContent {
  bool embedding = false;
  int first_layer = 0;  // layers first_layer … first_layer + layers - 1; none where layers is 0
  int layers = 0;
  int mtp_layers = 0;  // of multi-token prediction, behind all layers
  bool head = false;   // output matrix and loss
  // States (S, C) that reach the stage: the residual stream, or, behind multi-token layers on earlier stages, the
  // outputs of the final norm and of those layers' norms, in their order. It hands them on, and its own.
  int states_in = 1;

  int states_out() const { return states_in + mtp_layers; }
  // The final norm stands where its output is read first: at the first multi-token layer, or the head.
  bool final_norm() const { return (head || mtp_layers > 0) && states_in == 1; }
  // Whether the final norm, multi-token layers or the head are here.
  bool ends_model() const { return head || mtp_layers > 0; }
  // Whether the stage holds nothing: it hands its input on.
  bool passes_through() const { return layers == 0 && !embedding && !ends_model(); }
  // Number of the stage's l-th layer, layers of multi-token prediction behind the others: L, L + 1, ….
  std::int64_t layer(int l) const { return first_layer + states_in - 1 + l; }

  friend bool operator==(const StageContent&, const StageContent&) = default;
};

// schedule.split: `layers` transformer layers over `stages` stages in the order in which activations flow. The
// embedding is on the first stage, the head on the last; stages without layers are legal.
//   even      as evenly as possible, the first stages hold one more; multi-token layers are on the last stage
//   balanced  embedding, head and multi-token layers count as a layer each
//   other     a layout as Megatron-Core's: E embedding, t layer, m multi-token layer, L head, | between stages, x*3
//             repeats x, (xy)*3 repeats xy; commas and spaces mean nothing. "Et*3|(tt|)*29m|L" is 61 layers and one
//             multi-token layer, on a stage of its own, on 32 stages.
// Throws BadInput naming schedule.split, the position in the string (from 1), the rule, and the legal texts.
std::vector<StageContent> split_layers(const std::string& split, int layers, int stages, int mtp_layers = 0);

}  // namespace forge
