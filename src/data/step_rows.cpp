#include "data/step_rows.hpp"

#include <algorithm>
#include <span>

#include "core/to_size.hpp"

namespace forge {

namespace {

// The token of the file that the document of token `first` begins with.
std::int64_t begin_by_token(const TokenFile& file, std::int64_t first, const TokenSetOptions& options) {
  std::vector<std::int32_t> tokens(1 << 16);
  for (std::int64_t end = first; end > 0;) {
    const std::int64_t count = std::min<std::int64_t>(end, static_cast<std::int64_t>(tokens.size()));
    const auto part = std::span(tokens).first(to_size(count));
    file.read(end - count, part, options.vocabulary);
    const auto found = std::find(part.rbegin(), part.rend(), options.document_end_token);
    if (found != part.rend()) return end - (found - part.rbegin());
    end -= count;
  }
  return 0;
}

void find_document(const TokenFile& file, const TokenSetOptions& options, SamplePart& part) {
  if (options.document_ends == DocumentEnds::index) {
    part.document = file.documents()->document_of(part.first);
    part.document_first = file.documents()->start(part.document);
  } else if (options.has_documents()) {
    part.document_first = begin_by_token(file, part.first, options);
  }
}

}  // namespace

StepRow row_of_step(const SampleStream& stream, const BatchShare& share, std::int64_t step, std::int64_t row) {
  const std::int64_t taken = share.batches.before(step) + row, place = stream.place(taken);
  const SampleStream::Place found = stream.at(place);
  const TokenSet& set = stream.set(found.source);
  StepRow result(set.sequence_tokens());
  result.place = taken;
  result.data_rank = row / share.microbatch % share.ranks;
  result.microbatch = row / (share.microbatch * share.ranks);
  result.source = stream.sources()[found.source].name;
  result.number = found.sample;
  set.read(found.sample, result.sample);
  if (const SamplePieces* pieces = stream.pieces(place)) pieces->cut(result.sample);
  const std::vector<std::int32_t>& documents = result.sample.documents;
  std::int64_t at = 0;
  for (const TokenSet::Stretch& stretch : set.stretches(found.sample)) {
    const TokenFile& file = set.files()[stretch.file];
    for (const std::int64_t end = at + stretch.length; at < end;) {
      SamplePart part{file.path(), at, 0, stretch.first + stretch.length - (end - at)};
      while (at < end && documents[to_size(at)] == documents[to_size(part.at)]) ++at;
      part.length = at - part.at;
      find_document(file, set.options(), part);
      result.parts.push_back(std::move(part));
    }
  }
  return result;
}

}  // namespace forge
