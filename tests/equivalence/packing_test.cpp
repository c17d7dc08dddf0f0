#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "../data/files.hpp"
#include "../long_run.hpp"
#include "core/error.hpp"
#include "data/sample_order.hpp"
#include "data/token_set.hpp"
#include "models.hpp"
#include "run_threads.hpp"

// Packed samples: their gradient is the sum of the documents' own, and the same on any layout.

namespace forge::test {
namespace {

constexpr std::int32_t end_token = 3;

// A mask of the tokens of token_file(31, 4097).
std::string mask_file(const Directory& dir) {
  std::vector<std::uint8_t> mask;
  for (std::size_t i = 0; i < 4097; ++i) mask.push_back(i % 7 != 2 && i % 11 < 8);
  const std::string path = dir / "mask.npy";
  write_text(path, npy(mask, "|u1"));
  return path;
}

Deck packed(Deck deck, const Directory& dir) {
  deck.data.document_end_token = end_token;
  deck.data.packing = Packing::best_fit;
  deck.data.packing_directory = dir / "plans";
  deck.data.positions = PositionOrigin::document;
  return deck;
}

struct Sums {
  double loss = 0, labels = 0, tokens = 0;
  int documents = 0;
  Tensors gradients;
};

// Of a run's means, times its labels.
void add(Sums& sums, const LayoutResult& result, double labels) {
  sums.loss += result.loss * labels;
  ++sums.documents;
  for (const auto& [name, values] : result.gradients) {
    std::vector<double>& sum = sums.gradients[name];
    sum.resize(values.size(), 0);
    for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i] * labels;
  }
}

// The pieces of the first step's samples, with their labels and tokens.
std::vector<DocumentPiece> pieces_of(const Deck& deck, const TokenSet& set, Sums& sums) {
  std::vector<DocumentPiece> all, pieces(64);
  const SampleSequence sequence{deck.data.order, deck.train.seed, set.samples()};
  for (std::int64_t place = 0; place < deck.train.global_batch_sequences; ++place) {
    const auto range = set.plan()->range_of(sequence.at(place));
    const auto part = std::span(pieces).first(static_cast<std::size_t>(range.end - range.first));
    set.plan()->read(range.first, part);
    all.insert(all.end(), part.begin(), part.end());
  }
  for (const DocumentPiece& piece : all) {
    sums.labels += static_cast<double>(piece.length + piece.continues - 1);
    sums.tokens += static_cast<double>(piece.length);
  }
  return all;
}

// Each document as a run of its own: a file of its tokens, as one sample that it fills. Routers' z-loss is a mean over
// tokens, others over labels.
Sums of_documents(const Deck& deck, const TokenSet& set, const Directory& dir) {
  Deck single = one_rank(deck);
  single.data.packing_directory = dir / "plans of documents";
  single.data.order = SampleOrder::sequential;
  single.train.global_batch_sequences = single.train.microbatch_sequences = 1;
  Sums sums;
  for (const DocumentPiece& piece : pieces_of(deck, set, sums)) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(piece.length + piece.continues));
    set.files()[0].read(piece.first, ids, 31);
    const std::string file = dir / ("document_" + std::to_string(piece.first) + ".bin");
    write_tokens(file, std::vector<std::uint16_t>(ids.begin(), ids.end()));
    const double labels = static_cast<double>(ids.size()) - 1, tokens = static_cast<double>(piece.length);
    single.data.files = {file};
    single.train.sequence_tokens = piece.length;
    single.model.router_z_coefficient = deck.model.router_z_coefficient * tokens / sums.tokens * sums.labels / labels;
    Deck checked = single;
    EXPECT_EQ(illegality(checked), "");
    add(sums, run_threads(checked, {}), labels);
  }
  return sums;
}

std::string sum_difference(const LayoutResult& result, const Sums& sums) {
  std::string text;
  if (std::abs(result.loss * sums.labels - sums.loss) > 1e-12 * sums.loss) text += "the loss is another one\n";
  double largest = 0;
  for (const auto& [name, sum] : sums.gradients)
    for (const double value : sum) largest = std::max(largest, std::abs(value));
  for (const auto& [name, sum] : sums.gradients) {
    const std::vector<double>& values = result.gradients.at(name);
    double off = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) off = std::max(off, std::abs(values[i] * sums.labels - sum[i]));
    if (!(off <= 1e-12 * largest)) text += name + " is off by " + std::to_string(off / largest) + "\n";
  }
  if (result.gradients.size() != sums.gradients.size()) text += "another number of tensors\n";
  return text;
}

struct Mesh {
  std::int64_t pp, dp, cp, tp;
  CpMethod method;
};
constexpr Mesh meshes[] = {{1, 1, 2, 1, CpMethod::ring},       {1, 1, 2, 2, CpMethod::all_gather},
                           {2, 1, 2, 1, CpMethod::all_to_all}, {2, 1, 2, 2, CpMethod::ring},
                           {1, 2, 2, 1, CpMethod::all_gather}, {3, 1, 1, 2, CpMethod::ring},
                           {1, 1, 4, 2, CpMethod::ring},       {1, 2, 1, 1, CpMethod::ring}};

Deck on(const Mesh& mesh, const Deck& deck) {
  MeshDeck m;
  m.pp = mesh.pp, m.dp_shard = mesh.dp, m.cp = mesh.cp, m.tp = mesh.tp;
  Deck d = layout_deck(deck, m, {}, 0);
  d.mesh.cp_method = mesh.method;
  EXPECT_EQ(illegality(d), "");
  return d;
}

// Of gated DeltaNet, with key heads for all of the meshes, and with chunks over which documents reach.
TestModel delta_model() {
  TestModel model = test_models()[0];
  MeshDeck most;
  most.cp = 4, most.tp = 2;
  model.deck.mesh = most;
  model.deck = with_delta(model.deck, 3);
  model.deck.mesh = {};
  model.name += " with gated DeltaNet";
  return model;
}

// 1e-12 in fp64, of models with rotations, learned positions, latent attention, experts and gated DeltaNet, on one rank
// and on layouts.
// Cross-entropy and z-losses add up over documents; what experts' shares of a sequence are multiplied by, and what a
// capacity leaves of it, doesn't.
TEST(PackedDocuments, TheGradientIsTheSumOfTheDocumentsOwn) {
  const auto dense = test_models(), experts = moe_models();
  for (const TestModel& model : {dense[0], dense[1], dense[4], experts[0], experts[2], experts[6], delta_model()}) {
    const Directory dir;
    const std::int64_t T = model.deck.model.full_attention_interval > 0 ? 192 : 64;
    Deck deck = packed(model.deck, dir);
    deck.model.dropout = 0;
    deck.train.z_loss_coefficient = 1e-2;
    if (deck.model.experts > 0) deck.model.router_z_coefficient = 0.03;
    deck.model.auxiliary_loss_coefficient = 0;
    deck.train.global_batch_sequences = 8;
    deck.train.sequence_tokens = T;
    if (deck.model.max_positions > 0) deck.model.max_positions = T;
    TokenSetOptions options{deck.data.files, deck.data.dtype, T, 31, end_token};
    options.packing = Packing::best_fit;
    options.packing_directory = deck.data.packing_directory;
    const TokenSet set(options);
    const Sums sums = of_documents(deck, set, dir);
    EXPECT_GE(sums.documents, 16);
    EXPECT_EQ(sum_difference(run_threads(on({1, 1, 1, 1, CpMethod::ring}, deck), {}), sums), "") << model.name;
    for (const Mesh& mesh : meshes) {
      const Deck layout = on(mesh, deck);
      EXPECT_EQ(sum_difference(run_threads(layout, {}), sums), "") << model.name << " " << text_of(layout);
    }
    // Positions of the sample are others to a learned table.
    Deck other = deck;
    other.data.positions = PositionOrigin::sample;
    const bool learned = deck.model.positions == PositionKind::learned;
    EXPECT_EQ(sum_difference(run_threads(on({1, 1, 1, 1, CpMethod::ring}, other), {}), sums) == "", !learned);
  }
}

// A ramp of the sequence length: samples of 64 tokens in pieces of 16 are as many samples of 16.
TEST(PackedDocuments, PiecesOfSamplesAreShorterSamples) {
  const auto models = test_models();
  for (const std::size_t m : {std::size_t{0}, std::size_t{1}, std::size_t{4}}) {
    Deck deck = models[m].deck;
    deck.model.dropout = 0;
    deck.train.z_loss_coefficient = 0;
    deck.train.global_batch_sequences = 8;
    deck.train.sequence_tokens = 64;
    deck.data.order = SampleOrder::sequential;
    if (deck.model.max_positions > 0) deck.model.max_positions = 64;
    Deck shorter = deck;
    shorter.train.global_batch_sequences = 32;
    shorter.train.sequence_tokens = 16;
    deck.data.phases = {{1, 0, {}, 16}};
    const LayoutResult one = run_threads(on({1, 1, 1, 1, CpMethod::ring}, shorter), {});
    Sums sums;
    sums.labels = 1;
    add(sums, one, 1);
    for (const Mesh& mesh : meshes) {
      const Deck layout = on(mesh, deck);
      EXPECT_EQ(sum_difference(run_threads(layout, {}), sums), "") << models[m].name << " " << text_of(layout);
    }
    deck.data.phases = {{2, 0, {}, 16}};
    EXPECT_NE(sum_difference(run_threads(on({1, 1, 1, 1, CpMethod::ring}, deck), {}), sums), "") << models[m].name;
  }
}

// Lengths and rates that change twice, over documents: four steps equal one rank's on any layout.
TEST(PackedDocuments, ARampEqualsOneRankOnAnyLayout) {
  const auto dense = test_models(), experts = moe_models();
  std::vector<LayoutCase> cases;
  for (const TestModel& model : {dense[0], dense[1], experts[0]})
    for (const Mesh& mesh : meshes) {
      Deck deck = model.deck;
      const std::int64_t T = deck.train.sequence_tokens;
      deck.data.phases = {{1, 0, {}, T / 4}, {2, 0, {}, T / 2, 2.0}, {4, 0, {}, 0, 0.25}};
      deck.data.document_end_token = end_token;
      deck.data.positions = model.name == dense[0].name ? PositionOrigin::document : PositionOrigin::sample;
      deck.train.steps = 4;
      cases.push_back({model.name, on(mesh, deck)});
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 4, 1e-9); };
  EXPECT_EQ(failures_of(thinned(cases, 1), part_of(3 * 8, 1), check), "");
}

// A mixture of packed sources with masks, in two phases: three steps equal one rank's.
TEST(PackedDocuments, AMixtureWithMasksEqualsOneRankOnAnyLayout) {
  const auto dense = test_models(), experts = moe_models(), depths = mtp_models();
  const Directory dir;
  const std::string mask = mask_file(dir);
  std::vector<LayoutCase> cases;
  for (const TestModel& model : {dense[1], dense[4], experts[0], experts[3], depths[1]})
    for (const Mesh& mesh : meshes) {
      Deck deck = packed(model.deck, dir);
      deck.data.sources = {{"a", deck.data.files, {mask}, 2, 0}, {"b", deck.data.files, {mask}, 1, 0}};
      deck.data.files.clear();
      deck.data.phases = {{3, 0, {{"b", 1}}}};
      deck.train.steps = 3;
      cases.push_back({model.name, on(mesh, deck)});
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 3, 1e-9); };
  EXPECT_EQ(failures_of(thinned(cases, 1), part_of(5 * 8, 1), check), "");
}

}  // namespace
}  // namespace forge::test
