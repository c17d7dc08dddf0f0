#include "data/token_set.hpp"

#include <algorithm>

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
}

}  // namespace

TokenSet::TokenSet(TokenSetOptions options) : options_(std::move(options)), first_sample_{0} {
  check(options_);
  const std::int64_t length = options_.sequence_tokens;
  std::string wrong;
  for (const std::string& path : options_.files) {
    try {
      TokenFile file = TokenFile::open(path, options_.dtype);
      if (file.tokens() <= length)
        throw BadInput(path + ": too short for a sample of " + std::to_string(length) + " + 1 tokens " +
                       "(train.sequence_tokens + 1): it holds " + std::to_string(file.tokens()) +
                       " and ends at byte offset " + std::to_string(file.offset_of(file.tokens())));
      first_sample_.push_back(first_sample_.back() + (file.tokens() - 1) / length);
      files_.push_back(std::move(file));
    } catch (const BadInput& error) {
      wrong += (wrong.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  if (!wrong.empty()) throw BadInput(wrong);
}

std::int64_t TokenSet::tokens() const {
  std::int64_t sum = 0;
  for (const TokenFile& file : files_) sum += file.tokens();
  return sum;
}

TokenSet::SamplePosition TokenSet::locate(std::int64_t sample) const {
  require(0 <= sample && sample < samples(), "token set: no such sample");
  const auto next = std::upper_bound(first_sample_.begin(), first_sample_.end(), sample);
  const auto file = to_size(next - first_sample_.begin()) - 1;
  return {file, sample - first_sample_[file]};
}

void TokenSet::read(std::int64_t sample, std::span<std::int32_t> out) const {
  require(static_cast<std::int64_t>(out.size()) == sequence_tokens() + 1, "token set: a sample is T + 1 tokens");
  const SamplePosition place = locate(sample);
  files_[place.file].read(place.sample * sequence_tokens(), out, options_.vocabulary);
}

}  // namespace forge
