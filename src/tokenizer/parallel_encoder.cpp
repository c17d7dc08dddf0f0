#include "tokenizer/parallel_encoder.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "core/to_size.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

// How far beyond its end a thread goes on at most, until its pieces end where those of the next one do.
constexpr std::size_t most_overlap_bytes = 1 << 14;

// Places about every `step` bytes, the first at 0, the last at the end.
std::vector<std::size_t> places_of(std::string_view text, std::size_t step) {
  std::vector<std::size_t> places{0};
  for (std::size_t at = step; at + step / 2 < text.size(); at += step) {
    while (continues_character(text[at])) ++at;
    places.push_back(at);
  }
  places.push_back(text.size());
  return places;
}

// Such places, each behind a cut.
template <class Cut>
std::vector<std::size_t> cut_places(std::string_view text, std::size_t step, const Cut& cut_behind) {
  std::vector<std::size_t> places = places_of(text, step);
  for (std::size_t i = 1; i + 1 < places.size(); ++i) places[i] = cut_behind(std::max(places[i], places[i - 1]));
  return places;
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

ParallelEncoder::ParallelEncoder(const Tokenizer& tokenizer, int threads) : tokenizer_(tokenizer) {
  const int count = threads > 0 ? threads : available_cores();
  for (int i = 0; i < count; ++i) encoders_.push_back(std::make_unique<Encoder>(tokenizer));
}

void ParallelEncoder::run(std::size_t count, const std::function<void(Encoder&, std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> failures(count);
  const auto loop = [&](Encoder& encoder) {
    for (std::size_t i; (i = next++) < count;) try {
        work(encoder, i);
      } catch (...) {
        failures[i] = std::current_exception();
        next = count;
      }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (std::size_t t = 1; t < encoders_.size() && t < count; ++t)
        threads.emplace_back([&, t] { loop(*encoders_[t]); });
    } catch (...) {  // there are no more: those that are there end
      next = count;
      throw;
    }
    loop(*encoders_[0]);
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

void ParallelEncoder::encode(std::string_view text, std::vector<std::int32_t>& ids, std::size_t chunk_bytes) {
  const TokenizerParts& parts = tokenizer_.parts();
  std::vector<AddedTokenFinder::Part> raw, normal;
  parts.raw_tokens.split(text, raw);
  for (const auto& [begin, end, id] : raw) {
    if (id >= 0) {
      ids.push_back(id);
      continue;
    }
    std::string_view part = text.substr(begin, end - begin);
    std::string changed;
    bool first = begin == 0;
    if (!parts.normalizers.empty()) {
      changed = part;
      first = normalize(changed, chunk_bytes) && first;
      part = changed;
    }
    parts.normalized_tokens.split(part, normal);
    for (const auto& [from, to, token] : normal) {
      if (token >= 0)
        ids.push_back(token);
      else
        encode_plain(part.substr(from, to - from), first && from == 0, ids, chunk_bytes);
    }
  }
}

bool ParallelEncoder::normalize(std::string& text, std::size_t chunk_bytes) {
  bool kept = true;
  const std::size_t before = text.size();
  for (const Normalizer& step : tokenizer_.parts().normalizers) {
    kept = encoders_[0]->keeps_start(step, text) && kept;
    if (step.local && text.size() >= 2 * chunk_bytes && encoders_.size() > 1)
      normalize_apart(step, text, chunk_bytes);
    else
      encoders_[0]->normalize(step, text);
    check_growth(before, text.size());
  }
  return kept;
}

void ParallelEncoder::normalize_apart(const Normalizer& step, std::string& text, std::size_t chunk_bytes) {
  const auto plain = [&](std::size_t at) { return (text[at] >= 'a' && text[at] <= 'z') || text[at] == ' '; };
  std::vector<std::size_t> places = places_of(text, chunk_bytes);
  for (std::size_t i = 1; i + 1 < places.size(); ++i) {
    places[i] = std::max(places[i], places[i - 1]);
    while (places[i] < text.size() && !(plain(places[i] - 1) && plain(places[i]))) ++places[i];
  }
  std::vector<std::string> parts(places.size() - 1);
  run(parts.size(), [&](Encoder& encoder, std::size_t i) {
    parts[i] = text.substr(places[i], places[i + 1] - places[i]);
    if (!parts[i].empty()) encoder.normalize(step, parts[i]);
  });
  text.clear();
  for (const std::string& part : parts) text += part;
}

void ParallelEncoder::encode_plain(std::string_view part, bool first, std::vector<std::int32_t>& ids,
                                   std::size_t chunk_bytes) {
  if (part.size() < 2 * chunk_bytes || encoders_.size() == 1) return encoders_[0]->encode_plain(part, first, ids);
  const auto& steps = tokenizer_.parts().pre_tokenizers;
  if (steps.empty()) return encode_piece(part, ids, chunk_bytes);
  const PreTokenizer& step = steps.front();
  if (steps.size() == 1 && step.keeps_whole)
    return encode_piece(encoders_[0]->whole_piece(step, part, first), ids, chunk_bytes);
  // Only the first piece of a text may differ from the others, and the first chunk begins where the text does.
  if ((first || steps.size() == 1) && step.cutting_pattern && encode_by_pattern(part, ids, chunk_bytes)) return;
  const auto places = cut_places(part, chunk_bytes, [&](std::size_t from) { return step.cut_behind(part, from); });
  encode_chunks(places, ids, [&](Encoder& encoder, std::size_t i, std::vector<std::int32_t>& to) {
    encoder.encode_plain(part.substr(places[i], places[i + 1] - places[i]), first && i == 0, to);
  });
}

void ParallelEncoder::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids, std::size_t chunk_bytes) {
  const TokenModel& model = *tokenizer_.parts().model;
  const auto places = cut_places(piece, chunk_bytes, [&](std::size_t from) { return model.cut_behind(piece, from); });
  encode_chunks(places, ids, [&](Encoder& encoder, std::size_t i, std::vector<std::int32_t>& to) {
    encoder.encode_piece(piece.substr(places[i], places[i + 1] - places[i]), to);
  });
}

void ParallelEncoder::encode_chunks(const std::vector<std::size_t>& places, std::vector<std::int32_t>& ids,
                                    const EncodeChunk& encode) {
  std::vector<std::vector<std::int32_t>> chunks(places.size() - 1);
  run(chunks.size(), [&](Encoder& encoder, std::size_t i) { encode(encoder, i, chunks[i]); });
  for (const auto& chunk : chunks) ids.insert(ids.end(), chunk.begin(), chunk.end());
}

// Each thread begins somewhere, and its pieces are the text's from the first boundary on that the thread before reaches
// too: what follows a boundary depends on nothing before it.
bool ParallelEncoder::encode_by_pattern(std::string_view part, std::vector<std::int32_t>& ids,
                                        std::size_t chunk_bytes) {
  struct Chunk {
    std::vector<std::int32_t> ids;
    std::vector<Encoder::Boundary> boundaries;
    bool good = false;
  };
  std::string buffer;
  const std::string_view seen = with_stand_ins(part, buffer);
  const std::vector<std::size_t> places = places_of(part, chunk_bytes);
  const std::size_t overlap_bytes = std::min(most_overlap_bytes, 8 * chunk_bytes);
  std::vector<Chunk> chunks(places.size() - 1);
  run(chunks.size(), [&](Encoder& encoder, std::size_t i) {
    const bool last = i + 1 == chunks.size();
    const std::size_t until = last ? part.size() : std::min(part.size(), places[i + 1] + overlap_bytes);
    // A piece that many chunks are part of must not be encoded by each of them.
    const std::size_t most_end = until + chunk_bytes;
    const Encoder::Range range{places[i], places[i] + overlap_bytes, places[i + 1], until, most_end};
    chunks[i].good = encoder.encode_range(part, seen, range, chunks[i].ids, chunks[i].boundaries);
  });
  if (!std::all_of(chunks.begin(), chunks.end(), [](const Chunk& chunk) { return chunk.good; })) return false;
  const std::size_t before = ids.size();
  std::size_t begin = 0;  // of this chunk's ids that count
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    const auto from = ids.end() - ids.begin();
    if (i + 1 == chunks.size()) {
      ids.insert(ids.end(), chunk.ids.begin() + static_cast<std::ptrdiff_t>(begin), chunk.ids.end());
      break;
    }
    const auto& mine = chunk.boundaries;
    const auto& theirs = chunks[i + 1].boundaries;
    auto a = std::lower_bound(mine.begin(), mine.end(), places[i + 1],
                              [](const auto& b, std::size_t at) { return b.at < at; });
    auto b = theirs.begin();
    while (a != mine.end() && b != theirs.end() && a->at != b->at) a->at < b->at ? void(++a) : void(++b);
    // What this chunk's ids say is certain only from where it met the one before.
    const bool met = a != mine.end() && b != theirs.end() && a->ids >= begin;
    if (!met) {
      ids.resize(to_size(from));
      const std::size_t last = mine.back().at;
      ids.insert(ids.end(), chunk.ids.begin() + static_cast<std::ptrdiff_t>(begin), chunk.ids.end());
      std::vector<Encoder::Boundary> unused;
      const Encoder::Range rest{last, 0, part.size(), part.size(), part.size()};
      const bool good = encoders_[0]->encode_range(part, seen, rest, ids, unused);
      if (!good) ids.resize(before);
      return good;
    }
    ids.insert(ids.end(), chunk.ids.begin() + static_cast<std::ptrdiff_t>(begin),
               chunk.ids.begin() + static_cast<std::ptrdiff_t>(a->ids));
    begin = b->ids;
  }
  return true;
}

}  // namespace forge
