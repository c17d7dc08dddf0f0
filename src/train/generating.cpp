#include "train/generating.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "core/to_size.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/choose_token.hpp"
#include "train/batch_feed.hpp"

namespace forge {

RunSetup generation_setup(Deck deck, int rank, std::int64_t piece) {
  const std::int64_t tokens = deck.train.sequence_tokens;
  const std::int64_t unit = deck.mesh.tp / std::gcd(deck.mesh.tp, deck.train.microbatch_sequences);
  deck.data = DataDeck{};
  deck.preference = PreferenceDeck{};
  deck.model.capacity_factor = 0;
  deck.train.sequence_tokens = (std::min(piece, tokens) + unit - 1) / unit * unit;
  RunSetup setup = make_setup(deck, rank);
  setup.buffers.cache_tokens = tokens;
  return setup;
}

template <class T>
Generator<T>::Generator(Session<T>& session)
    : session_(session),
      slots_(session.setup().deck.train.microbatch_sequences),
      piece_(session.setup().deck.train.sequence_tokens) {
  const RunSetup& setup = session.setup();
  require(setup.mesh.cp == 1 && setup.buffers.cache_tokens > 0, "a session that generates has no cache, or cp ranks");
  batch_.allocate(1, slots_, piece_, setup.rows());
  places_.resize(batch_.tokens.size());
  rows_.resize(to_size(slots_));
  chosen_.resize(to_size(slots_));
  session.begin_evaluation();
}

template <class T>
std::optional<std::int64_t> Generator<T>::own_slot(std::int64_t text) const {
  const std::int64_t replicas = session_.setup().replicas();
  if (text % replicas != session_.setup().share.data_rank) return {};
  return text / replicas;
}

// Rows without a token of a text are filler: they see a key of their place, and nobody sees them.
template <class T>
void Generator<T>::fill(const std::vector<TextPart>& parts) {
  const RowShare& share = batch_.share;
  const auto own = [&](std::int32_t id) {
    const bool here = id >= share.vocabulary.begin && id < share.vocabulary.end;
    return here ? static_cast<std::int32_t>(id - share.vocabulary.begin) : foreign_token;
  };
  std::ranges::fill(batch_.tokens, own(0));
  std::ranges::fill(batch_.labels, masked_label);
  std::ranges::fill(batch_.positions, 0);
  std::ranges::fill(batch_.documents, 0);
  std::ranges::fill(batch_.samples, -1);
  std::ranges::fill(places_, -1);
  std::ranges::fill(rows_, -1);
  for (const TextPart& part : parts) {
    const auto slot = own_slot(part.text);
    if (!slot) continue;
    const std::int64_t count = std::ssize(part.tokens);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t row = to_size(*slot * piece_ + i);
      batch_.tokens[row] = own(part.tokens[to_size(i)]);
      batch_.positions[row] = static_cast<std::int32_t>(part.first + i);
      batch_.samples[row] = part.text;
      places_[row] = static_cast<std::int32_t>(*slot * session_.setup().buffers.cache_tokens + part.first + i);
    }
    if (part.choice) rows_[to_size(*slot)] = static_cast<std::int32_t>(*slot * piece_ + count - 1);
  }
}

namespace {

// The workspace has room for the vocabulary as tensor-parallel ranks divide it, which may be a few tokens more.
template <class A>
ChoiceWorkspace<A> of_vocabulary(const ChoiceWorkspace<A>& all, std::int64_t V) {
  ChoiceWorkspace<A> w = all;
  w.largest = all.largest.slice(0, choice_chunks(V));
  w.weights = all.weights.slice(0, V);
  w.tokens = View<std::int32_t, 2>(all.tokens.data, {{2, V}}, all.tokens.columns());
  return w;
}

}  // namespace

// On ranks with the head. Tensor-parallel ranks hand their logits to all of them, of which the first one chooses.
template <class T>
void Generator<T>::choose(const std::vector<TextPart>& parts) {
  using A = acc_t<T>;
  const GenerationBuffers<T>& g = session_.generation();
  Stream& stream = session_.stream();
  const int tp = session_.setup().mesh.tp;
  if (tp > 1) session_.mesh().tp().all_gather(stream, View<const A, 2>(g.logits), g.all_logits);
  if (session_.setup().share.tp_rank > 0) return;
  const std::int64_t columns = g.logits.columns(), V = session_.setup().spec.V();
  for (const TextPart& part : parts) {
    const auto slot = own_slot(part.text);
    if (!slot || !part.choice) continue;
    const A* logits = g.logits.row(*slot);
    if (tp > 1) {
      const View<const A, 2> of_text(g.all_logits.row(*slot), {{tp, columns}}, slots_ * columns);
      copy_rows<A>(stream, of_text, g.text_logits);
      logits = g.text_logits.data;
    }
    choose_token<A>(stream, View<const A, 1>(logits, {{V}}), *part.choice, of_vocabulary(g.choice, V),
                    g.chosen.slice(*slot, *slot + 1));
  }
  copy_to_host(stream, chosen_.data(), g.chosen.data, chosen_.size() * sizeof(std::int32_t));
}

template <class T>
std::vector<std::int32_t> Generator<T>::pass(const std::vector<TextPart>& parts) {
  struct Chosen {
    std::int64_t text, token;
  };
  fill(parts);
  const GenerationBuffers<T>& g = session_.generation();
  Stream& stream = session_.stream();
  const bool head = !g.chosen.empty();
  copy_to_device(stream, g.places.data, places_.data(), places_.size() * sizeof(std::int32_t));
  if (head) copy_to_device(stream, g.rows.data, rows_.data(), rows_.size() * sizeof(std::int32_t));
  BatchFeed feed(batch_);
  session_.evaluate_microbatch(feed, 0);
  if (head) choose(parts);
  stream.synchronize();
  session_.beat();
  std::vector<Chosen> own;
  for (const TextPart& part : parts)
    if (const auto slot = own_slot(part.text); head && slot && part.choice && session_.setup().share.tp_rank == 0)
      own.push_back({part.text, chosen_[to_size(*slot)]});
  Communicator& world = session_.mesh().world();
  std::vector<std::int32_t> tokens(world.rank() == 0 ? to_size(texts()) : 0, -1);
  std::string words(own.size() * sizeof(Chosen), '\0');
  if (!own.empty()) std::memcpy(words.data(), own.data(), words.size());
  world.collect_host(words, 0, [&](const std::string& text) {
    for (std::size_t at = 0; at < text.size(); at += sizeof(Chosen)) {
      Chosen one{};
      std::memcpy(&one, text.data() + at, sizeof one);
      tokens[to_size(one.text)] = static_cast<std::int32_t>(one.token);
    }
  });
  return tokens;
}

FORGE_INSTANTIATE_CLASS(Generator);

}  // namespace forge
