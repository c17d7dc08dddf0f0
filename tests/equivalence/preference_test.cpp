#include <gtest/gtest.h>

#include <cmath>

#include "../data/files.hpp"
#include "../long_run.hpp"
#include "core/random.hpp"
#include "cover.hpp"
#include "data/sample_order.hpp"
#include "data/token_set.hpp"
#include "models.hpp"
#include "pair_files.hpp"
#include "run_threads.hpp"

// Direct preference optimization: its loss and gradients are those of the formula, and the same on any layout.

namespace forge::test {
namespace {

// The run of one text alone, with the loss of labels: −log p and its gradient, each over the labels' number.
LayoutResult run_text(const Deck& deck, const TokenSet& set, const DocumentPiece& piece, const Directory& dir,
                      double& labels) {
  Deck single = one_rank(deck);
  single.preference = PreferenceDeck();
  single.data.packing = Packing::best_fit;
  single.data.packing_directory = dir / "plans of texts";
  single.train.global_batch_sequences = single.train.microbatch_sequences = 1;
  single.train.sequence_tokens = piece.length;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(piece.length)), kept(ids.size());
  set.files()[0].read(piece.first, ids, 31);
  TokenFile::open_mask(deck.data.mask_files[0]).read(piece.first, kept, 2);
  const std::string name = dir / ("text_" + std::to_string(piece.first));
  write_tokens(name + ".bin", std::vector<std::uint16_t>(ids.begin(), ids.end()));
  write_text(name + ".npy", npy(std::vector<std::uint8_t>(kept.begin(), kept.end()), "|u1"));
  single.data.files = {name + ".bin"};
  single.data.mask_files = {name + ".npy"};
  labels = 0;
  for (std::size_t i = 1; i < kept.size(); ++i) labels += kept[i];
  EXPECT_EQ(illegality(single), "");
  return run_threads(single, {});
}

struct Wanted {
  double loss = 0;
  Tensors gradients;
  std::vector<double> references;
};

// loss = mean of −(1 − s) log σ(x) − s log σ(−x),  x = beta ((log p_0 − f_0) − (log p_1 − f_1)), and its gradient
// Σ −beta ((1 − s) σ(−x) − s σ(x)) / pairs · d (log p_0 − log p_1), over the pairs of step 1.
Wanted by_formula(const Deck& deck, const Directory& dir) {
  TokenSetOptions options{deck.data.files, deck.data.dtype, deck.train.sequence_tokens, 31, end_token};
  options.packing = Packing::pairs;
  options.packing_directory = deck.data.packing_directory;
  const TokenSet set(options);
  EXPECT_EQ(set.samples(), pairs_of_file);
  const SampleSequence sequence{deck.data.order, deck.train.seed, set.samples()};
  Wanted wanted;
  for (std::int64_t i = 0; i < 2 * pairs_of_file; ++i)
    wanted.references.push_back(-4 + static_cast<double>(mix(9, static_cast<std::uint64_t>(i)) % 100) / 20);
  const double pairs = static_cast<double>(deck.train.global_batch_sequences), beta = deck.preference.beta,
               s = deck.preference.label_smoothing;
  for (std::int64_t place = 0; place < deck.train.global_batch_sequences; ++place) {
    const std::int64_t sample = sequence.at(place);
    const auto range = set.plan()->range_of(sample);
    EXPECT_EQ(range.end - range.first, 2);
    std::vector<DocumentPiece> texts(2);
    set.plan()->read(range.first, texts);
    std::array<LayoutResult, 2> runs;
    std::array<double, 2> labels{}, reward{};
    for (std::size_t t = 0; t < 2; ++t) {
      runs[t] = run_text(deck, set, texts[t], dir, labels[t]);
      reward[t] = beta * (-runs[t].loss * labels[t] - wanted.references[static_cast<std::size_t>(2 * sample) + t]);
    }
    const double x = reward[0] - reward[1], up = 1 / (1 + std::exp(-x)), down = 1 / (1 + std::exp(x));
    wanted.loss += (-(1 - s) * std::log(up) - s * std::log(down)) / pairs;
    for (std::size_t t = 0; t < 2; ++t)
      for (const auto& [name, values] : runs[t].gradients) {
        std::vector<double>& sum = wanted.gradients[name];
        sum.resize(values.size(), 0);
        const double factor = (t == 0 ? 1 : -1) * beta * ((1 - s) * down - s * up) / pairs * labels[t];
        for (std::size_t i = 0; i < values.size(); ++i) sum[i] += factor * values[i];
      }
  }
  return wanted;
}

std::string formula_difference(const LayoutResult& result, const Wanted& wanted) {
  std::string text = result.problem;
  if (!(std::abs(result.loss - wanted.loss) <= 1e-12 * wanted.loss)) text += "the loss is another one\n";
  double largest = 0;
  for (const auto& [name, sum] : wanted.gradients)
    for (const double value : sum) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 1e-3);
  for (const auto& [name, sum] : wanted.gradients) {
    const std::vector<double>& values = result.gradients.at(name);
    double off = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) off = std::max(off, std::abs(values[i] - sum[i]));
    if (!(off <= 1e-12 * largest)) text += name + " is off by " + std::to_string(off / largest) + "\n";
  }
  if (result.gradients.size() != wanted.gradients.size()) text += "another number of tensors\n";
  return text;
}

Deck on_mesh(const Deck& deck, std::int64_t pp, std::int64_t dp, std::int64_t cp, std::int64_t tp, CpMethod method) {
  MeshDeck m;
  m.pp = pp, m.dp_shard = dp, m.cp = cp, m.tp = tp;
  Deck d = layout_deck(deck, m, {}, 0);
  d.mesh.cp_method = method;
  EXPECT_EQ(illegality(d), "");
  return d;
}

TEST(Preferences, AreTheFormulaOfTextsAlone) {
  const auto dense = test_models(), experts = moe_models();
  for (const TestModel& model : {dense[0], dense[1], dense[3], experts[0]}) {
    const Directory dir;
    Deck deck = with_pairs(model.deck, dir);
    deck.model.dropout = 0;
    deck.model.router_z_coefficient = deck.model.auxiliary_loss_coefficient = 0;
    deck.train.global_batch_sequences = 4;
    const Wanted wanted = by_formula(deck, dir);
    RunOptions options;
    options.references = &wanted.references;
    for (const Deck& layout :
         {on_mesh(deck, 1, 1, 1, 1, CpMethod::ring), on_mesh(deck, 1, 1, 2, 2, CpMethod::ring),
          on_mesh(deck, 1, 1, 4, 1, CpMethod::all_gather), on_mesh(deck, 2, 1, 2, 1, CpMethod::all_to_all),
          on_mesh(deck, 2, 2, 1, 2, CpMethod::ring)})
      EXPECT_EQ(formula_difference(run_threads(layout, options), wanted), "") << model.name << " " << text_of(layout);
  }
}

TEST(Preferences, EqualOneRank) {
  const Directory dir;
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const std::uint64_t key : {61, 62}) {
      std::vector<LayoutCase> drawn = drawn_layouts(ranks, key);
      const std::vector<LayoutCase> experts = drawn_moe_layouts(ranks, key);
      drawn.insert(drawn.end(), experts.begin(), experts.end());
      for (LayoutCase& c : drawn) {
        // A pair's prompts are rows of equal probabilities: which of them a capacity drops, the last bit decides.
        if (c.deck.model.capacity_factor > 0 && c.deck.model.capacity_drop == CapacityDrop::probability) continue;
        Deck deck = with_pairs(with_training(c.deck, 3), dir);
        if (illegality(deck).empty()) cases.push_back({c.name, deck});
      }
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 3, 1e-9); };
  EXPECT_GE(cases.size(), 100u);
  const auto some = thinned(cases, 8);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

// A run whose reference is the model itself begins with pairs that are as likely either way.
TEST(Preferences, BeginWithTheLogarithmOfTwo) {
  const Directory dir;
  Deck deck = with_pairs(test_models()[0].deck, dir);
  for (const Deck& layout : {on_mesh(deck, 1, 1, 1, 1, CpMethod::ring), on_mesh(deck, 2, 1, 2, 2, CpMethod::ring)}) {
    const LayoutResult near = run_threads(layout, {});
    EXPECT_GT(std::abs(near.loss - std::log(2.0)), 1e-3);
    RunOptions options;
    options.references = &near.texts;
    EXPECT_NEAR(run_threads(layout, options).loss, std::log(2.0), 1e-12);
  }
}

// With adapters, which alone have gradients.
TEST(Preferences, TrainAdapters) {
  const Directory dir;
  std::vector<LayoutCase> cases;
  for (int ranks = 2; ranks <= 4; ++ranks)
    for (LayoutCase& c : drawn_layouts(ranks, 63)) {
      if (c.deck.model.experts > 0 || c.deck.model.attention != AttentionKind::standard) continue;
      c.deck.model.adapter.name = AdapterName::lora;
      c.deck.model.adapter.rank = 3;
      Deck deck = with_pairs(with_training(c.deck, 3), dir);
      if (illegality(deck).empty()) cases.push_back({c.name, deck});
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 3, 1e-9); };
  EXPECT_GE(cases.size(), 10u);
  const auto some = thinned(cases, 8);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

}  // namespace
}  // namespace forge::test
