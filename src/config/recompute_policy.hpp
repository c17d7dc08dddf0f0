#pragma once

#include <array>
#include <string_view>

namespace forge {

// Results of a block's forward pass that backward computes again instead of finding them saved: a set of names, or
// whole blocks (Chen et al. 1604.06174; Korthikanti et al. 2205.05198).
struct Recompute {
  enum Part : unsigned { norms = 1, activations = 2, expert_activations = 4, up_projections = 8, blocks = 16 };

  unsigned parts = 0;

  constexpr bool has(Part part) const { return (parts & part) != 0; }
  constexpr bool includes(Recompute other) const { return (other.parts & ~parts) == 0; }
  friend constexpr bool operator==(Recompute, Recompute) = default;

  // Each drops more than the one before.
  static const Recompute none, selective, latent, full;
};

inline constexpr Recompute Recompute::none{};
inline constexpr Recompute Recompute::selective{norms | activations | expert_activations};
inline constexpr Recompute Recompute::latent{selective.parts | up_projections};
inline constexpr Recompute Recompute::full{latent.parts | blocks};

// The deck's words of those, and its names of the parts that it may list, in the order of their bits.
struct RecomputeWord {
  std::string_view word;
  Recompute policy;
};
inline constexpr std::array recompute_words{
    RecomputeWord{"none", Recompute::none}, RecomputeWord{"selective", Recompute::selective},
    RecomputeWord{"latent", Recompute::latent}, RecomputeWord{"full", Recompute::full}};
inline constexpr std::array<std::string_view, 4> recompute_parts{"norms", "activations", "expert_activations",
                                                                 "up_projections"};

}  // namespace forge
