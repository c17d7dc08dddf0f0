#include "train/scoring.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/to_size.hpp"
#include "data/packing.hpp"
#include "train/batch_feed.hpp"

namespace forge {

std::vector<ScoredSequence> scored_sequences(const std::vector<ScoredPiece>& pieces, std::int64_t T, bool alone) {
  std::vector<ScoredSequence> sequences;
  if (alone) {
    for (std::size_t i = 0; i < pieces.size(); ++i) sequences.push_back({i});
    std::ranges::stable_sort(sequences, std::ranges::greater{},
                             [&](const ScoredSequence& one) { return pieces[one.front()].inputs(); });
    return sequences;
  }
  std::vector<DocumentPiece> documents;
  for (const ScoredPiece& piece : pieces) documents.push_back({0, piece.inputs(), true});
  for (const auto& numbers : best_fit(documents, T)) sequences.emplace_back(numbers.begin(), numbers.end());
  return sequences;
}

void write_sequence(const std::vector<ScoredPiece>& pieces, const ScoredSequence& sequence, Sample& sample) {
  std::ranges::fill(sample.tokens, 0);
  std::ranges::fill(sample.labels, masked_label);
  std::size_t at = 0;
  std::int32_t document = 0;
  for (const std::size_t number : sequence) {
    const ScoredPiece& piece = pieces[number];
    const std::size_t inputs = to_size(piece.inputs()), first = inputs - to_size(piece.labels);
    for (std::size_t i = 0; i < inputs; ++i, ++at) {
      sample.tokens[at] = piece.tokens[i];
      sample.labels[at] = i >= first ? piece.tokens[i + 1] : masked_label;
      sample.documents[at] = document;
      sample.positions[at] = static_cast<std::int32_t>(i);
    }
    ++document;
  }
  sample.filled = static_cast<std::int64_t>(at);
  if (at == sample.labels.size()) sample.tokens.back() = sample.labels.back();
  for (std::int32_t position = 0; at < sample.labels.size(); ++at) {
    sample.documents[at] = document;
    sample.positions[at] = position++;
  }
}

RunSetup scoring_setup(Deck deck, int rank) {
  deck.data = DataDeck{};
  deck.preference = PreferenceDeck{};
  deck.data.document_ends = DocumentEnds::index;
  deck.data.positions = PositionOrigin::document;
  RunSetup setup = make_setup(deck, rank);
  setup.buffers.row_scores = true;
  return setup;
}

template <class T>
Scorer<T>::Scorer(Session<T>& session)
    : session_(session),
      sequence_tokens_(session.setup().deck.train.sequence_tokens),
      at_once_(session.setup().deck.train.microbatch_sequences * session.setup().replicas()),
      // Experts of limited capacity drop assignments by the whole sequence; and a training's batches may have no
      // documents.
      alone_((session.setup().spec.E() > 0 && session.setup().deck.model.capacity_factor > 0) ||
             !session.setup().deck.data.has_documents() ||
             session.setup().deck.data.positions != PositionOrigin::document),
      filler_(sequence_tokens_, session.setup().deck.model.vocabulary),
      sample_(sequence_tokens_) {
  const RunSetup& setup = session.setup();
  const ScoreBuffers& memory = session.score_buffers();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.batch.allocate(1, setup.deck.train.microbatch_sequences, sequence_tokens_, setup.rows());
    if (memory.beaten.empty()) continue;
    const std::size_t rows = slot.batch.labels.size();
    const Array<std::int64_t, 1> count{{static_cast<std::int64_t>(rows)}};
    slot.scores = {View<double, 1>(memory.log_likelihood.row(static_cast<std::int64_t>(i)), count),
                   View<std::int32_t, 1>(memory.beaten.row(static_cast<std::int64_t>(i)), count)};
    slot.host_log_likelihood.resize(rows);
    slot.host_beaten.resize(rows);
  }
  session.begin_evaluation();
}

// The microbatch whose sequences, of all data-parallel ranks, begin with `first`.
template <class T>
void Scorer<T>::start(Slot& slot, std::int64_t first, const std::vector<ScoredPiece>& pieces,
                      const std::vector<ScoredSequence>& sequences) {
  slot.first = first + session_.setup().share.data_rank * slot.batch.microbatch_sequences;
  filler_.begin(slot.batch);
  for (std::int64_t row = 0; row < slot.batch.sequences; ++row) {
    const std::int64_t number = slot.first + row;
    if (number >= static_cast<std::int64_t>(sequences.size())) {
      filler_.fill_padding(slot.batch, row);
      continue;
    }
    write_sequence(pieces, sequences[to_size(number)], sample_);
    filler_.fill_sample(slot.batch, row, sample_, number);
  }
  filler_.finish(slot.batch);
  BatchFeed feed(slot.batch);
  session_.evaluate_microbatch(feed, 0, slot.scores);
  const std::size_t rows = slot.host_beaten.size();
  if (rows > 0) {
    Stream& stream = session_.stream();
    copy_to_host(stream, slot.host_log_likelihood.data(), slot.scores.log_likelihood.data, rows * sizeof(double));
    copy_to_host(stream, slot.host_beaten.data(), slot.scores.beaten.data, rows * sizeof(std::int32_t));
  }
  slot.read.record(session_.stream());
  session_.beat();
}

// Waits for the slot's microbatch and takes its scores. Tensor-parallel ranks have the same likelihoods, of which the
// first one's count.
template <class T>
void Scorer<T>::finish(Slot& slot, std::vector<RowScore>& rows) {
  if (slot.first < 0) return;
  slot.read.synchronize();
  const HostBatch& batch = slot.batch;
  const bool first = session_.setup().share.tp_rank == 0;
  for (std::size_t i = 0; i < slot.host_beaten.size(); ++i) {
    if (batch.labels[i] == masked_label || (!first && slot.host_beaten[i] == 0)) continue;
    const std::int64_t sequence = slot.first + static_cast<std::int64_t>(i) / batch.local_tokens();
    rows.push_back({sequence * sequence_tokens_ + batch.positions[i], first ? slot.host_log_likelihood[i] : 0,
                    slot.host_beaten[i]});
  }
  slot.first = -1;
}

// Likelihoods are added to zeros, each once: the same bits on any layout that computes the same rows.
template <class T>
std::vector<PieceScores> Scorer<T>::gather(const std::vector<RowScore>& rows, const std::vector<ScoredPiece>& pieces,
                                           const std::vector<ScoredSequence>& sequences) {
  Communicator& world = session_.mesh().world();
  std::vector<RowScore> all(world.rank() == 0 ? sequences.size() * to_size(sequence_tokens_) : 0);
  std::string own(rows.size() * sizeof(RowScore), '\0');
  if (!rows.empty()) std::memcpy(own.data(), rows.data(), own.size());
  world.collect_host(own, 0, [&](const std::string& text) {
    for (std::size_t at = 0; at < text.size(); at += sizeof(RowScore)) {
      RowScore row;
      std::memcpy(&row, text.data() + at, sizeof row);
      all[to_size(row.place)].log_likelihood += row.log_likelihood;
      all[to_size(row.place)].beaten += row.beaten;
    }
  });
  if (world.rank() != 0) return {};
  std::vector<PieceScores> scores(pieces.size());
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    auto at = static_cast<std::int64_t>(s) * sequence_tokens_;
    for (const std::size_t number : sequences[s]) {
      at += pieces[number].inputs();
      for (std::int64_t place = at - pieces[number].labels; place < at; ++place) {
        scores[number].log_likelihoods.push_back(all[to_size(place)].log_likelihood);
        scores[number].greedy = scores[number].greedy && all[to_size(place)].beaten == 0;
      }
    }
  }
  return scores;
}

template <class T>
std::vector<PieceScores> Scorer<T>::score(const std::vector<ScoredPiece>& pieces) {
  const std::vector<ScoredSequence> sequences = scored_sequences(pieces, sequence_tokens_, alone_);
  std::vector<RowScore> rows;
  const auto count = static_cast<std::int64_t>(sequences.size());
  std::size_t turn = 0;
  for (std::int64_t first = 0; first < count; first += at_once_, turn ^= 1) {
    finish(slots_[turn], rows);  // that of two microbatches before
    start(slots_[turn], first, pieces, sequences);
  }
  for (const std::size_t last : {turn, turn ^ 1}) finish(slots_[last], rows);
  return gather(rows, pieces, sequences);
}

FORGE_INSTANTIATE_CLASS(Scorer);

}  // namespace forge
