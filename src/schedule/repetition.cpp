#include "schedule/repetition.hpp"

#include "config/schedule_name.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"

namespace forge {

Repetition repetition_of(const Deck& deck, std::int64_t microbatches) {
  const Repetition none{static_cast<int>(microbatches), 1, 0};
  if (deck.schedule.name == ScheduleName::gpipe || !deck.schedule.file.empty()) return none;
  const std::int64_t pp = deck.mesh.pp;
  const std::int64_t period = deck.schedule.name == ScheduleName::interleaved ? pp : 1;
  // A pipeline is full after at most 3 pp microbatches, and what is gathered by then is gathered again in the same
  // order from there on.
  const std::int64_t least = 3 * pp + 4, few = least + (microbatches - least) % period;
  if (microbatches <= few + period) return none;
  return {static_cast<int>(few), static_cast<int>(period), (microbatches - few) / period};
}

Schedule lowered_schedule(const Deck& deck, std::int64_t microbatches) {
  return lower(schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(microbatches)));
}

Schedule few_of(const Deck& deck, const Schedule& lowered) {
  const int few = repetition_of(deck, lowered.microbatches).few;
  return few == lowered.microbatches ? lowered : lowered_schedule(deck, few);
}

}  // namespace forge
