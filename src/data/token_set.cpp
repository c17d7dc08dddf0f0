#include "data/token_set.hpp"

#include <algorithm>
#include <array>

#include "config/report.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

void check(const TokenSetOptions& options) {
  if (options.files.empty()) throw BadInput("data.files: names no file");
  if (options.sequence_tokens < 1)
    throw BadInput("train.sequence_tokens: is " + std::to_string(options.sequence_tokens) + ", must be at least 1");
  if (options.vocabulary < 1 || options.vocabulary > std::int64_t{1} << 31)
    throw BadInput("model.vocabulary: is " + std::to_string(options.vocabulary) + ", must be 1 to 2147483648");
  if (options.document_end_token >= options.vocabulary)
    throw BadInput("data.document_end_token: is " + std::to_string(options.document_end_token) +
                   ", outside the vocabulary of " + std::to_string(options.vocabulary));
  if (!options.mask_files.empty() && options.mask_files.size() != options.files.size())
    throw BadInput("data.mask_files: there are " + std::to_string(options.mask_files.size()) + " for " +
                   std::to_string(options.files.size()) + " files");
}

void check_length(const TokenFile& file, const TokenSetOptions& options) {
  const std::int64_t length = options.sequence_tokens, needed = options.packing == Packing::cut ? length + 1 : 1;
  if (file.tokens() < needed && needed == 1) throw BadInput(file.path() + ": holds no tokens; legal: at least one");
  if (file.tokens() < needed)
    throw BadInput(file.path() + ": too short for a sample of " + std::to_string(length) + " + 1 tokens " +
                   "(train.sequence_tokens + 1): it holds " + std::to_string(file.tokens()) +
                   " and ends at byte offset " + std::to_string(file.offset_of(file.tokens())));
}

void check_index(const TokenFile& file, const TokenSetOptions& options) {
  if (options.document_ends == DocumentEnds::index && !file.documents())
    throw BadInput(file.path() + ": a " + std::string(name_of(file.format())) +
                   " file without an index of documents, which data.document_ends = index needs; legal: a Megatron "
                   ".bin with its .idx, a .ds with its .ds.index, or document_ends: token");
}

void check_mask(const std::optional<TokenFile>& file, const std::optional<TokenFile>& mask) {
  if (file && mask && mask->tokens() != file->tokens())
    throw BadInput(mask->path() + ": a mask of " + std::to_string(mask->tokens()) + " tokens for the " +
                   std::to_string(file->tokens()) + " of " + file->path());
}

}  // namespace

TokenSet::TokenSet(TokenSetOptions options, bool with_plan)
    : options_(std::move(options)), first_sample_{0}, first_token_{0} {
  check(options_);
  open_files();
  if (with_plan) open_plan();
}

void TokenSet::open_files() {
  Report report;
  for (std::size_t i = 0; i < options_.files.size(); ++i) {
    std::optional<TokenFile> file, mask;
    report.collect([&] {
      file.emplace(TokenFile::open(options_.files[i], options_.dtype));
      check_length(*file, options_);
      check_index(*file, options_);
    });
    if (!options_.mask_files.empty())
      report.collect([&] { mask.emplace(TokenFile::open_mask(options_.mask_files[i])); });
    report.collect([&] { check_mask(file, mask); });
    if (!report.empty()) continue;
    first_sample_.push_back(first_sample_.back() + (file->tokens() - 1) / options_.sequence_tokens);
    first_token_.push_back(first_token_.back() + file->tokens());
    files_.push_back(std::move(*file));
    if (mask) masks_.push_back(std::move(*mask));
  }
  if (!report.empty()) throw BadInput(report.lines());
}

TokenSet::SamplePosition TokenSet::locate(std::int64_t sample) const {
  require(!plan_ && 0 <= sample && sample < samples(), "token set: no such sample");
  const auto next = std::upper_bound(first_sample_.begin(), first_sample_.end(), sample);
  const auto file = to_size(next - first_sample_.begin()) - 1;
  return {file, sample - first_sample_[file]};
}

std::size_t TokenSet::file_of(std::int64_t token) const {
  const auto next = std::upper_bound(first_token_.begin(), first_token_.end(), token);
  return to_size(next - first_token_.begin()) - 1;
}

void TokenSet::read(std::int64_t sample, std::span<std::int32_t> out) const {
  require(static_cast<std::int64_t>(out.size()) == sequence_tokens() + 1, "token set: a sample is T + 1 tokens");
  const SamplePosition place = locate(sample);
  files_[place.file].read(place.sample * sequence_tokens(), out, options_.vocabulary);
}

void TokenSet::read(std::int64_t sample, Sample& out) const {
  plan_ ? read_packed(sample, out) : read_cut(sample, out);
  const std::size_t first = to_size(2 * sample);
  out.references = {Sample::no_reference, Sample::no_reference};
  if (!references_.empty()) out.references = {references_[first], references_[first + 1]};
}

void TokenSet::set_references(std::vector<double> values) {
  require(static_cast<std::int64_t>(values.size()) == 2 * samples(), "references: two for each pair");
  references_ = std::move(values);
}

// Whether tokens [first, first + count) of a file may be labels, in out.kept from `at` on.
void TokenSet::read_mask(std::size_t file, std::int64_t first, std::size_t at, std::size_t count, Sample& out) const {
  const auto kept = std::span(out.kept).subspan(at, count);
  if (masks_.empty()) return std::fill(kept.begin(), kept.end(), std::uint8_t{1});
  std::array<std::int32_t, 1024> values;
  for (std::size_t done = 0; done < count; done += values.size()) {
    const auto part = std::span(values).first(std::min(values.size(), count - done));
    masks_[file].read(first + static_cast<std::int64_t>(done), part, 2);
    std::transform(part.begin(), part.end(), kept.begin() + static_cast<std::ptrdiff_t>(done),
                   [](std::int32_t value) { return static_cast<std::uint8_t>(value); });
  }
}

// documents := whether a document begins with tokens 1 … T of the sample, whose token 0 is `first` of the file.
void TokenSet::mark_documents(std::size_t file, std::int64_t first, Sample& out) const {
  const std::int64_t T = sequence_tokens();
  if (options_.document_ends == DocumentEnds::token) {
    for (std::int64_t t = 0; t < T; ++t)
      out.documents[to_size(t)] = out.tokens[to_size(t)] == options_.document_end_token;
    return;
  }
  std::fill(out.documents.begin(), out.documents.end(), 0);
  const DocumentIndex& index = *files_[file].documents();
  std::array<std::int64_t, 256> starts;
  for (std::int64_t d = index.document_of(first) + 1; d < index.documents();) {
    const auto part = std::span(starts).first(
        to_size(std::min<std::int64_t>(static_cast<std::int64_t>(starts.size()), index.documents() - d)));
    index.starts(d, part);
    for (const std::int64_t start : part)
      if (start > first && start <= first + T) out.documents[to_size(start - first - 1)] = 1;
    if (part.back() > first + T) return;
    d += static_cast<std::int64_t>(part.size());
  }
}

void TokenSet::read_cut(std::int64_t sample, Sample& out) const {
  const SamplePosition place = locate(sample);
  const std::int64_t first = place.sample * sequence_tokens();
  files_[place.file].read(first, out.tokens, options_.vocabulary);
  read_mask(place.file, first, 0, out.kept.size(), out);
  mark_documents(place.file, first, out);
  out.filled = sequence_tokens();
  std::int32_t document = 0, position = 0;
  for (std::size_t t = 0; t < out.labels.size(); ++t) {
    const bool ends = out.documents[t] != 0;
    out.labels[t] = ends || !out.kept[t + 1] ? masked_label : out.tokens[t + 1];
    out.documents[t] = document;
    out.positions[t] = position;
    document += ends;
    position = ends ? 0 : position + 1;
  }
}

}  // namespace forge
