#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// The longest period of a mixture.
inline constexpr std::int64_t most_period = 65536;

// Weights as integers whose sum is at most most_period: themselves, where they are multiples of a decimal unit and
// their smallest whole proportion fits; else shares of most_period, rounded by the largest remainder, ties to the
// first. Throws BadInput where a positive weight would become 0. `names`: of the sources, for the message.
std::vector<std::int64_t> whole_weights(const std::vector<double>& weights, const std::vector<std::string>& names);

// One place of a period: which source, and the how manieth of its samples in the period, from 0.
struct PeriodPlace {
  std::uint16_t source;
  std::uint32_t index;
};

// A period of Σ weights places in which, among the first t, each source stands weight · t / Σ weights times to within
// less than one: R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980), whose bound is
// 1 − 1 / (2n − 2) for n sources. Ties go to the first source.
std::vector<PeriodPlace> chairman_assignment(const std::vector<std::int64_t>& weights);

// Which source stands at each place of a run: phases, each of periods that repeat. Any place is found in constant time
// (and a search among phases), so that a run can go on anywhere.
class MixtureOrder {
 public:
  struct Phase {
    std::int64_t begin = 0;             // place; 0 for the first
    std::vector<std::int64_t> weights;  // whole; of every source
  };
  explicit MixtureOrder(const std::vector<Phase>& phases);

  struct Draw {
    std::size_t source = 0;
    std::int64_t index = 0;  // how many samples the source gave before, in the whole run
  };
  Draw at(std::int64_t place) const;
  // Samples that a source gives at places 0 … places − 1.
  std::int64_t drawn(std::size_t source, std::int64_t places) const;

 private:
  struct Period {
    std::int64_t begin = 0;
    std::vector<std::int64_t> weights;
    std::vector<PeriodPlace> places;
    std::vector<std::vector<std::uint32_t>> of_source;  // places of each source in the period, ascending
    std::vector<std::int64_t> before;                   // samples that each source gave before the phase
  };
  const Period& period_of(std::int64_t place) const;
  static std::int64_t drawn_in(const Period& period, std::size_t source, std::int64_t places);
  std::vector<Period> periods_;
};

}  // namespace forge
