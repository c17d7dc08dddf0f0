#include <gtest/gtest.h>

#include "config/schedule_name.hpp"
#include "small_deck.hpp"

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

// Of pp ranks and four microbatches a step, where nothing else is said.
TEST(Check, PairsOfPasses) {
  const auto pairs = [](ScheduleName name, std::int64_t pp, auto change) {
    return [=](Deck& d) {
      d.train.overlap = Overlap::pairs, d.schedule.name = name, d.mesh.pp = pp, d.model.layers = 8;
      d.model.tied_embeddings = false;
      change(d);
    };
  };
  const auto nothing = [](Deck&) {};
  const auto tied = [](Deck& d) { d.model.tied_embeddings = true; };
  const auto one = [](Deck& d) { d.train.global_batch_sequences = d.train.microbatch_sequences; };
  for (const ScheduleName name :
       {ScheduleName::one_f_one_b, ScheduleName::interleaved, ScheduleName::zero_bubble, ScheduleName::zb_v}) {
    EXPECT_NO_THROW(checked(pairs(name, 2, nothing), 2)) << name_of(name);
    EXPECT_NO_THROW(checked(pairs(name, 1, nothing), 1)) << name_of(name);
  }
  EXPECT_NO_THROW(checked(pairs(ScheduleName::zero_bubble, 2, tied), 2));
  expect_refused(pairs(ScheduleName::gpipe, 2, nothing),
                 {"train.overlap = pairs with schedule.name = gpipe; legal: none, or schedule.name 1f1b, interleaved, "
                  "zero_bubble or zb_v"},
                 2);
  expect_refused(pairs(ScheduleName::zero_bubble, 2, one), {"1 microbatch a step; legal: none, or at least 2"}, 2);
  expect_refused(pairs(ScheduleName::zb_v, 4, nothing),
                 {"4 microbatches a step; legal: none, or at least 2 mesh.pp - 1 = 7"}, 4);
  expect_refused(pairs(ScheduleName::zb_v, 2, tied),
                 {"model.tied_embeddings = true and schedule.name = zb_v", "1f1b, interleaved or zero_bubble"}, 2);
  EXPECT_NO_THROW(checked(pairs(ScheduleName::one_f_one_b, 1, tied), 1));
}

}  // namespace
}  // namespace forge
