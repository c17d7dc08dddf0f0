#include <gtest/gtest.h>

#include "config/schedule_name.hpp"
#include "small_deck.hpp"

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

// A stage that holds nothing is a mistake, but where the split is written out.
TEST(Check, MoreStagesThanLayers) {
  const auto of = [](std::int64_t pp, const char* split, ScheduleName name) {
    return [=](Deck& d) { d.mesh.pp = pp, d.schedule.split = split, d.schedule.name = name; };
  };
  const ScheduleName plain = ScheduleName::one_f_one_b;
  EXPECT_NO_THROW(checked(of(3, "even", plain), 3)) << "the last stage has the head";
  EXPECT_NO_THROW(checked(of(4, "balanced", plain), 4)) << "embedding, two layers, head";
  EXPECT_NO_THROW(checked(of(8, "Ett|||||||L", plain), 8));
  expect_refused(of(4, "even", plain), {"mesh.pp = 4 = 4 stages for model.layers = 2", "1 stage would", "at most 3"},
                 4);
  expect_refused(of(8, "balanced", plain), {"8 stages for model.layers = 2", "4 stages would", "at most 4 stages"}, 8);
  expect_refused(of(4, "even", ScheduleName::zb_v), {"mesh.pp = 4 x 2 chunks = 8 stages", "written out"}, 4);
}

// One value stands for the section.
TEST(Check, NothingIsSavedWhereTheDirectoryIsNone) {
  const Deck deck = checked([](Deck& d) {
    d.checkpoint.directory = "none", d.checkpoint.every_steps = 5, d.checkpoint.keep_last = 2;
    d.output.save_hf = true, d.model.norm = NormKind::layernorm;  // such a model has no name there
  });
  EXPECT_EQ(deck.checkpoint.directory, "");
  EXPECT_EQ(deck.checkpoint.every_steps, 0);
  EXPECT_FALSE(deck.output.save_hf);
}

}  // namespace
}  // namespace forge
