#pragma once

#include <string>
#include <vector>

namespace forge {

// What one pipeline stage holds of the model.
struct StageContent {
  bool embedding = false;
  int first_layer = 0;  // layers first_layer … first_layer + layers - 1; none where layers is 0
  int layers = 0;
  int mtp_layers =
      0;  // of multi-token prediction: layers first_layer + layers and on; with the head (require_mtp_at_head)
  bool head = false;  // final norm, head and loss

  friend bool operator==(const StageContent&, const StageContent&) = default;
};

// schedule.split: `layers` transformer layers over `stages` stages in the order in which activations flow. The
// embedding is on the first stage, the head on the last; stages without layers are legal.
//   even      as evenly as possible, the first stages hold one more; multi-token layers are on the last stage
//   balanced  embedding, head and multi-token layers count as a layer each
//   other     a layout as Megatron-Core's: E embedding, t layer, m multi-token layer, L head, | between stages, x*3
//   repeats x,
//             (xy)*3 repeats xy; commas and spaces mean nothing. "Et*3|(tt|)*29m|L" is 61 layers on 32 stages.
// Throws BadInput naming schedule.split, the position in the string (from 1), the rule, and what would be legal.
std::vector<StageContent> split_layers(const std::string& split, int layers, int stages, int mtp_layers = 0);

// Multi-token layers share the stage of the head, whose loss they have. Throws BadInput naming schedule.split
// otherwise.
void require_mtp_at_head(const std::string& split, const std::vector<StageContent>& stages);

}  // namespace forge
