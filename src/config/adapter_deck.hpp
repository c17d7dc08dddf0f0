#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// Low-rank matrices beside a model's own, which alone are trained: h = W x + scale B A x (Hu et al. 2022,
// arXiv 2106.09685).
enum class AdapterName { none, lora };
struct AdapterDeck {
  AdapterName name = AdapterName::none;
  std::int64_t rank = 8;             // r
  double alpha = 16;                 // scale = alpha / r, …
  bool rank_stabilised = false;      // … or alpha / sqrt(r) (Kalajdzievski 2023, arXiv 2312.03732)
  double dropout = 0;                // of A's input; no other value yet
  std::vector<std::string> targets;  // Hugging Face's names of matrices; none: all of attention and MLP
  std::string load;                  // directory that PEFT or forge has written; "" = drawn A, zero B
  bool on() const { return name != AdapterName::none; }
};

// Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290), on pairs of texts.
enum class PreferenceName { none, dpo };
struct PreferenceDeck {
  PreferenceName name = PreferenceName::none;
  double beta = 0.1;           // of the reward beta (log p − log p of the reference)
  double label_smoothing = 0;  // probability that a pair's preference is the other way round
  std::string reference;       // file of the reference's log-probabilities; "" = <output.directory>/reference.logp
  bool on() const { return name != PreferenceName::none; }
};

}  // namespace forge
