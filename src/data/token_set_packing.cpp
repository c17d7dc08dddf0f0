#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "core/to_size.hpp"
#include "data/token_set.hpp"

// The packed half of a TokenSet: its plan, and samples by it.

namespace forge {

namespace {

constexpr std::uint64_t plan_version = 2;

std::uint64_t as_word(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

// When a file was written last, and its tokens at 256 places: an edited file, or another one in its place, gets a plan
// of its own. Which documents there are is mixed in apart, where an index says so.
std::uint64_t contents(std::uint64_t key, const TokenFile& file, std::int64_t vocabulary) {
  std::error_code unknown;
  key = mix(key, as_word(std::filesystem::last_write_time(file.path(), unknown).time_since_epoch().count()));
  constexpr std::int64_t places = 256, each = 16;
  std::array<std::int32_t, each> tokens;
  const std::int64_t n = std::min(each, file.tokens()), last = file.tokens() - n;
  for (std::int64_t i = 0; i < places; ++i) {
    const auto part = std::span(tokens).first(to_size(n));
    file.read(last / (places - 1) * i + std::min(i, last % (places - 1)), part, vocabulary);
    for (const std::int32_t token : part) key = mix(key, as_word(token));
  }
  return key;
}

// visit(begin, end) of each document of a file.
template <class Visit>
void for_each_indexed(const DocumentIndex& index, Visit visit) {
  std::vector<std::int64_t> starts(8192);
  std::int64_t begin = 0;
  for (std::int64_t d = 1; d <= index.documents();) {
    const auto part = std::span(starts).first(
        to_size(std::min<std::int64_t>(static_cast<std::int64_t>(starts.size()), index.documents() + 1 - d)));
    index.starts(d, part);
    for (const std::int64_t end : part) {
      visit(begin, end);
      begin = end;
    }
    d += static_cast<std::int64_t>(part.size());
  }
}

template <class Visit>
void for_each_ended(const TokenFile& file, std::int64_t end_token, std::int64_t vocabulary, Visit visit) {
  std::vector<std::int32_t> tokens(1 << 16);
  std::int64_t begin = 0;
  for (std::int64_t first = 0; first < file.tokens();) {
    const auto part = std::span(tokens).first(
        to_size(std::min<std::int64_t>(static_cast<std::int64_t>(tokens.size()), file.tokens() - first)));
    file.read(first, part, vocabulary);
    for (std::size_t i = 0; i < part.size(); ++i)
      if (part[i] == end_token) {
        visit(begin, first + static_cast<std::int64_t>(i) + 1);
        begin = first + static_cast<std::int64_t>(i) + 1;
      }
    first += static_cast<std::int64_t>(part.size());
  }
  if (begin < file.tokens()) visit(begin, file.tokens());
}

// Unfinished plans that a killed process has left: nobody has written to them for an hour, and whose names have a
// process that isn't there (packing_KEY.plan.PROCESS.THREAD.partial; another node may have one of that number).
void remove_stale_plans(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const std::size_t process = name.find(".plan.");
    if (!name.starts_with("packing_") || !name.ends_with(".partial") || process == std::string::npos) continue;
    std::error_code missing;
    const auto written = fs::last_write_time(at->path(), missing);
    const int number = std::atoi(name.c_str() + process + std::strlen(".plan."));
    if (missing || number <= 0 || fs::file_time_type::clock::now() - written < std::chrono::hours(1)) continue;
    if (::kill(number, 0) != 0 && errno == ESRCH) fs::remove(at->path(), missing);
  }
}

}  // namespace

std::uint64_t TokenSet::plan_key() const {
  std::uint64_t key = mix(plan_version, as_word(packing_window));
  for (const std::int64_t word :
       {options_.sequence_tokens, options_.document_end_token, static_cast<std::int64_t>(options_.document_ends)})
    key = mix(key, as_word(word));
  if (options_.packing == Packing::pairs) key = mix(key, 0);
  for (const TokenFile& file : files_) {
    key = contents(mix(key, as_word(file.tokens())), file, options_.vocabulary);
    if (options_.document_ends == DocumentEnds::index)
      for_each_indexed(*file.documents(), [&](std::int64_t, std::int64_t end) { key = mix(key, as_word(end)); });
  }
  return key;
}

void TokenSet::open_plan() {
  if (options_.packing == Packing::cut) return;
  if (options_.packing_directory.empty()) throw BadInput("data.packing_directory: is empty, must be a directory");
  if (!options_.has_documents())
    throw BadInput(
        "data.packing: best_fit and pairs need documents: data.document_end_token, or data.document_ends = index");
  const std::uint64_t key = plan_key();
  const std::string path =
      options_.packing_directory + formatted("/packing_%016llx.plan", static_cast<unsigned long long>(key));
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) write_plan(path, key);
  plan_.emplace(PackingPlan::open(path, key, sequence_tokens()));
  if (plan_->samples() == 0)
    throw BadInput(files_.front().path() + ": no document of " +
                   (files_.size() > 1 ? "this and the other files" : "it") + " has two tokens: nothing to predict");
}

void TokenSet::write_plan(const std::string& path, std::uint64_t key) const {
  std::error_code error;
  std::filesystem::create_directories(options_.packing_directory, error);
  remove_stale_plans(options_.packing_directory);
  std::optional<PackingPlanWriter> writer(std::in_place, path, key, sequence_tokens(),
                                          options_.packing == Packing::pairs);
  try {
    for (std::size_t file = 0; file < files_.size(); ++file) add_documents(file, *writer);
    writer->finish();
  } catch (...) {
    // Nothing unwinds behind this where nobody catches (core/last_words.hpp): the unfinished plan is removed here.
    writer.reset();
    throw;
  }
}

void TokenSet::add_documents(std::size_t file, PackingPlanWriter& writer) const {
  const std::int64_t before = first_token_[file];
  std::int64_t seen = 0;
  const bool pairs = options_.packing == Packing::pairs;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (pairs) check_text(file, begin, end, seen);
    if (begin < end) writer.add_document(before + begin, before + end);
    ++seen;
    if (options_.heartbeat && seen % 4096 == 0) options_.heartbeat->beat();
  };
  if (options_.document_ends == DocumentEnds::index)
    for_each_indexed(*files_[file].documents(), add);
  else
    for_each_ended(files_[file], options_.document_end_token, options_.vocabulary, add);
  if (pairs && seen % 2 != 0)
    throw BadInput(files_[file].path() + ": " + std::to_string(seen) +
                   " documents, of which data.packing = pairs makes pairs; legal: an even number");
}

// Text `number` of a file of pairs. Its pair's sample must hold both.
void TokenSet::check_text(std::size_t file, std::int64_t begin, std::int64_t end, std::int64_t number) const {
  const std::int64_t length = end - begin, T = sequence_tokens();
  if (length >= 2 && length < T) return;
  throw BadInput(files_[file].path() + ": document " + std::to_string(number) + ", text " + std::to_string(number % 2) +
                 " of pair " + std::to_string(number / 2) + ", has " + counted(length, "token") +
                 "; legal with data.packing = pairs: at least 2, and both texts of a pair " +
                 "at most train.sequence_tokens = " + std::to_string(T));
}

// Whether the piece is in one file and, where a token says so, ends with its document or goes on.
bool TokenSet::read_piece(const DocumentPiece& piece, std::size_t at, std::int32_t document, Sample& out) const {
  const std::size_t file = piece.first < tokens() ? file_of(piece.first) : files_.size();
  const std::size_t length = to_size(piece.length), count = length + piece.continues;
  if (file == files_.size() || count > to_size(first_token_[file + 1] - piece.first)) return false;
  const std::int64_t first = piece.first - first_token_[file];
  files_[file].read(first, std::span(out.tokens).subspan(at, count), options_.vocabulary);
  read_mask(file, first, at, count, out);
  for (std::size_t i = 0; i < length; ++i) {
    const std::size_t t = at + i;
    const bool last = i + 1 == length && !piece.continues;
    if (options_.document_ends == DocumentEnds::token) {
      const bool end_of_file = first + static_cast<std::int64_t>(i) + 1 == files_[file].tokens();
      const bool ends = out.tokens[t] == options_.document_end_token;
      if (ends ? !last : last && !end_of_file) return false;
    }
    out.labels[t] = last || !out.kept[t + 1] ? masked_label : out.tokens[t + 1];
    out.documents[t] = document;
    out.positions[t] = static_cast<std::int32_t>(i);
  }
  return true;
}

std::vector<TokenSet::Stretch> TokenSet::stretches(std::int64_t sample) const {
  if (!plan_) {
    const SamplePosition place = locate(sample);
    return {{place.file, place.sample * sequence_tokens(), sequence_tokens()}};
  }
  const PackingPlan::Range range = plan_->range_of(sample);
  std::vector<DocumentPiece> pieces(to_size(range.end - range.first));
  plan_->read(range.first, pieces);
  std::vector<Stretch> list;
  for (const DocumentPiece& piece : pieces) {
    const std::size_t file = file_of(piece.first);
    list.push_back({file, piece.first - first_token_[file], piece.length});
  }
  return list;
}

// Pieces are read one behind the other: the token behind one, its last label, makes room for the next.
void TokenSet::read_packed(std::int64_t sample, Sample& out) const {
  std::array<DocumentPiece, 64> pieces;
  std::size_t at = 0;
  std::int32_t document = 0;
  const PackingPlan::Range range = plan_->range_of(sample);
  for (std::int64_t i = range.first; i < range.end;) {
    const auto part = std::span(pieces).first(
        to_size(std::min<std::int64_t>(static_cast<std::int64_t>(pieces.size()), range.end - i)));
    plan_->read(i, part);
    for (const DocumentPiece& piece : part) {
      if (to_size(piece.length) > out.labels.size() - at || !read_piece(piece, at, document++, out))
        plan_->refuse_piece(i);
      at += to_size(piece.length);
      ++i;
    }
  }
  out.filled = static_cast<std::int64_t>(at);
  if (at < out.labels.size() || out.labels.back() == masked_label) out.tokens.back() = 0;
  for (std::int32_t position = 0; at < out.labels.size(); ++at) {
    out.tokens[at] = 0;
    out.labels[at] = masked_label;
    out.documents[at] = document;
    out.positions[at] = position++;
  }
}

}  // namespace forge
