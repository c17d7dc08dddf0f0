#include "data/packing.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace forge {

namespace {

constexpr std::uint64_t header_words = 8, piece_words = 2, word = sizeof(std::uint64_t);
constexpr std::uint64_t continues_bit = std::uint64_t{1} << 63;
constexpr std::size_t flushed_words = 1 << 16;

std::uint64_t plan_magic() {
  std::uint64_t value;
  std::memcpy(&value, "forgepk1", sizeof value);
  return value;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> best_fit(std::span<const DocumentPiece> pieces, std::int64_t T) {
  std::vector<std::uint32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return pieces[a].length > pieces[b].length; });
  std::vector<std::vector<std::uint32_t>> samples;
  std::set<std::pair<std::int64_t, std::size_t>> open;  // room left, sample
  for (const std::uint32_t i : order) {
    const std::int64_t length = pieces[i].length;
    require(0 < length && length <= T, "packing: a piece has 1 to T tokens");
    const auto found = open.lower_bound({length, 0});
    std::int64_t room = T;
    std::size_t sample = samples.size();
    if (found != open.end()) {
      room = found->first;
      sample = found->second;
      open.erase(found);
    } else {
      samples.emplace_back();
    }
    samples[sample].push_back(i);
    if (room > length) open.emplace(room - length, sample);
  }
  for (auto& sample : samples) std::sort(sample.begin(), sample.end());
  return samples;
}

PackingPlan PackingPlan::open(const std::string& path, std::uint64_t key, std::int64_t T) {
  PackingPlan plan(FileHandle::open_to_read(path, "packing plan"), path);
  std::array<std::uint64_t, header_words> head{};
  const std::uint64_t bytes = plan.file_.size();
  if (bytes < sizeof head) plan.refuse(static_cast<std::int64_t>(bytes), "the file ends within the header of 64 bytes");
  plan.file_.read_at(0, head.data(), sizeof head);
  if (head[0] != plan_magic()) plan.refuse(0, "the magic string forgepk1 is missing");
  if (head[1] != key || head[2] != static_cast<std::uint64_t>(T)) plan.refuse(8, "it belongs to other data");
  const std::uint64_t words = bytes / word - header_words, samples = head[3], pieces = head[4];
  const bool fits = bytes % word == 0 && pieces <= words / piece_words && samples < words &&
                    words == piece_words * pieces + samples + 1;
  if (!fits || head[5] > static_cast<std::uint64_t>(INT64_MAX) || head[6] > static_cast<std::uint64_t>(INT64_MAX))
    plan.refuse(24, "the header promises " + std::to_string(samples) + " samples of " + std::to_string(pieces) +
                        " pieces, which a file of " + std::to_string(bytes) + " bytes doesn't hold");
  plan.T_ = T;
  plan.samples_ = static_cast<std::int64_t>(samples);
  plan.pieces_ = static_cast<std::int64_t>(pieces);
  plan.tokens_ = static_cast<std::int64_t>(head[5]);
  plan.documents_ = static_cast<std::int64_t>(head[6]);
  return plan;
}

void PackingPlan::refuse(std::int64_t offset, const std::string& what) const {
  throw BadInput(path_ + ": packing plan at byte offset " + std::to_string(offset) + ": " + what +
                 "; legal: remove it, and it is made anew");
}

std::int64_t PackingPlan::offset_of_firsts() const {
  return static_cast<std::int64_t>(word * header_words) + pieces_ * static_cast<std::int64_t>(word * piece_words);
}

void PackingPlan::refuse_piece(std::int64_t i) const {
  refuse(static_cast<std::int64_t>(word) * (static_cast<std::int64_t>(header_words) + 2 * i),
         "a piece that isn't a document's of the files, or doesn't fit into its sample");
}

PackingPlan::Range PackingPlan::range_of(std::int64_t sample) const {
  require(0 <= sample && sample < samples_, "packing plan: no such sample");
  std::array<std::uint64_t, 2> range{};
  const std::int64_t at = offset_of_firsts() + sample * static_cast<std::int64_t>(word);
  file_.read_at(static_cast<std::uint64_t>(at), range.data(), sizeof range);
  if (range[0] > range[1] || range[1] > static_cast<std::uint64_t>(pieces_))
    refuse(at, "sample " + std::to_string(sample) + " has pieces that aren't there");
  return {static_cast<std::int64_t>(range[0]), static_cast<std::int64_t>(range[1])};
}

void PackingPlan::read(std::int64_t first, std::span<DocumentPiece> out) const {
  std::array<std::uint64_t, piece_words * 64> stored;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t n = std::min<std::size_t>(out.size() - done, 64);
    const auto i = static_cast<std::uint64_t>(first) + done;
    file_.read_at(word * (header_words + piece_words * i), stored.data(), n * piece_words * word);
    for (std::size_t j = 0; j < n; ++j, ++done) {
      const std::uint64_t length = stored[2 * j + 1] & ~continues_bit;
      if (length < 1 || length > static_cast<std::uint64_t>(T_) || stored[2 * j] > INT64_MAX / 2)
        refuse_piece(static_cast<std::int64_t>(i + j));
      out[done] = {static_cast<std::int64_t>(stored[2 * j]), static_cast<std::int64_t>(length),
                   (stored[2 * j + 1] & continues_bit) != 0};
    }
  }
}

PackingPlanWriter::PackingPlanWriter(const std::string& path, std::uint64_t key, std::int64_t T, bool pairs)
    : file_(path), key_(key), pairs_(pairs), T_(T), written_(word * header_words) {}

void PackingPlanWriter::add_document(std::int64_t begin, std::int64_t end) {
  if (pairs_) {
    window_.push_back({begin, end - begin, false});
    ++documents_;
    if (window_.size() == 2) put_pair();
    return;
  }
  // Whole samples come first in a window's order, and need not wait for its end: what waits is a piece a document.
  for_each_piece(begin, end, T_, [&](const DocumentPiece& piece) {
    if (piece.length < T_) return window_.push_back(piece);
    firsts_.push_back(static_cast<std::uint64_t>(pieces_));
    put(piece);
  });
  ++documents_;
  if (++in_window_ == packing_window) pack();
}

void PackingPlanWriter::pack() {
  for (const auto& sample : best_fit(window_, T_)) {
    firsts_.push_back(static_cast<std::uint64_t>(pieces_));
    for (const std::uint32_t i : sample) put(window_[i]);
  }
  window_.clear();
  in_window_ = 0;
}

void PackingPlanWriter::put_pair() {
  const std::int64_t length = window_[0].length + window_[1].length;
  if (length > T_)
    throw BadInput("data.packing = pairs: pair " + std::to_string(firsts_.size()) + " of the set has " +
                   std::to_string(length) + " tokens; legal: at most train.sequence_tokens = " + std::to_string(T_));
  firsts_.push_back(static_cast<std::uint64_t>(pieces_));
  for (const DocumentPiece& text : window_) put(text);
  window_.clear();
}

void PackingPlanWriter::put(const DocumentPiece& piece) {
  buffer_.push_back(static_cast<std::uint64_t>(piece.first));
  buffer_.push_back(static_cast<std::uint64_t>(piece.length) | (piece.continues ? continues_bit : 0));
  tokens_ += piece.length;
  ++pieces_;
  if (buffer_.size() >= flushed_words) flush();
}

void PackingPlanWriter::flush() {
  file_.file().write_at(written_, buffer_.data(), buffer_.size() * word);
  written_ += buffer_.size() * word;
  buffer_.clear();
}

void PackingPlanWriter::finish() {
  pack();
  const auto samples = static_cast<std::uint64_t>(firsts_.size());
  firsts_.push_back(static_cast<std::uint64_t>(pieces_));
  buffer_.insert(buffer_.end(), firsts_.begin(), firsts_.end());
  flush();
  const auto as_word = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const std::array<std::uint64_t, header_words> head{
      plan_magic(), key_, as_word(T_), samples, as_word(pieces_), as_word(tokens_), as_word(documents_), 0};
  file_.file().write_at(0, head.data(), sizeof head);
  file_.commit();
}

}  // namespace forge
