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

// How far beyond its end a thread goes on, until its pieces end where those of the next one do.
constexpr std::size_t overlap_bytes = 1 << 14;

bool continues(char byte) {
  return (static_cast<std::uint8_t>(byte) & 0xC0) == 0x80;
}

// Places about every `step` bytes, the first at 0, the last at the end.
std::vector<std::size_t> places_of(std::string_view text, std::size_t step) {
  std::vector<std::size_t> places{0};
  for (std::size_t at = step; at + step / 2 < text.size(); at += step) {
    while (continues(text[at])) ++at;
    places.push_back(at);
  }
  places.push_back(text.size());
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
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < encoders_.size() && t < count; ++t) threads.emplace_back([&, t] { loop(*encoders_[t]); });
  loop(*encoders_[0]);
  for (std::thread& thread : threads) thread.join();
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
    if (!parts.normalizers.empty()) part = changed = normalized(part, chunk_bytes);
    parts.normalized_tokens.split(part, normal);
    for (const auto& [from, to, token] : normal) {
      if (token >= 0)
        ids.push_back(token);
      else
        encode_plain(part.substr(from, to - from), begin == 0 && from == 0, ids, chunk_bytes);
    }
  }
}

// Where all steps are local, parts that begin with two ASCII letters are normalised apart.
std::string ParallelEncoder::normalized(std::string_view part, std::size_t chunk_bytes) {
  const Normalizers& steps = tokenizer_.parts().normalizers;
  const bool local = std::all_of(steps.begin(), steps.end(), [](const auto& step) { return step->local(); });
  if (!local || part.size() < 2 * chunk_bytes) return encoders_[0]->normalized(part);
  const auto plain = [&](std::size_t at) {
    const char c = part[at];
    return (c >= 'a' && c <= 'z') || c == ' ';
  };
  std::vector<std::size_t> places = places_of(part, chunk_bytes);
  for (std::size_t i = 1; i + 1 < places.size(); ++i)
    while (places[i] < part.size() && !(plain(places[i] - 1) && plain(places[i]))) ++places[i];
  for (std::size_t i = 1; i < places.size(); ++i) places[i] = std::max(places[i], places[i - 1]);
  std::vector<std::string> texts(places.size() - 1);
  run(texts.size(), [&](Encoder& encoder, std::size_t i) {
    if (places[i] < places[i + 1]) texts[i] = encoder.normalized(part.substr(places[i], places[i + 1] - places[i]));
  });
  std::string text;
  for (const std::string& t : texts) text += t;
  return text;
}

void ParallelEncoder::encode_plain(std::string_view part, bool first, std::vector<std::int32_t>& ids,
                                   std::size_t chunk_bytes) {
  const auto& steps = tokenizer_.parts().pre_tokenizers;
  if (part.size() >= 2 * chunk_bytes && encoders_.size() > 1) {
    if (steps.empty()) return encode_by_model(part, ids, chunk_bytes);
    // Only the first piece of a text may differ from the others, and the first chunk begins where the text does.
    if (first && steps.front()->cutting_pattern() && encode_by_pattern(part, ids, chunk_bytes)) return;
    if (!first && steps.front()->cutting_pattern() && steps.size() == 1 && encode_by_pattern(part, ids, chunk_bytes))
      return;
  }
  encoders_[0]->encode_plain(part, first, ids);
}

void ParallelEncoder::encode_by_model(std::string_view part, std::vector<std::int32_t>& ids, std::size_t chunk_bytes) {
  const TokenModel& model = *tokenizer_.parts().model;
  std::vector<std::size_t> places = places_of(part, chunk_bytes);
  for (std::size_t i = 1; i + 1 < places.size(); ++i)
    places[i] = model.cut_behind(part, std::max(places[i], places[i - 1]));
  std::vector<std::vector<std::int32_t>> chunks(places.size() - 1);
  run(chunks.size(), [&](Encoder& encoder, std::size_t i) {
    encoder.encode_plain(part.substr(places[i], places[i + 1] - places[i]), i == 0, chunks[i]);
  });
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
  std::vector<Chunk> chunks(places.size() - 1);
  run(chunks.size(), [&](Encoder& encoder, std::size_t i) {
    const bool last = i + 1 == chunks.size();
    const Encoder::Range range{places[i], places[i] + overlap_bytes, places[i + 1],
                               last ? part.size() : std::min(part.size(), places[i + 1] + overlap_bytes)};
    chunks[i].good = encoder.encode_range(part, seen, range, chunks[i].ids, chunks[i].boundaries);
  });
  if (!std::all_of(chunks.begin(), chunks.end(), [](const Chunk& chunk) { return chunk.good; })) return false;
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
      return encoders_[0]->encode_range(part, seen, {last, 0, part.size(), part.size()}, ids, unused);
    }
    ids.insert(ids.end(), chunk.ids.begin() + static_cast<std::ptrdiff_t>(begin),
               chunk.ids.begin() + static_cast<std::ptrdiff_t>(a->ids));
    begin = b->ids;
  }
  return true;
}

}  // namespace forge
