#include <algorithm>
#include <memory>

#include "app/model_text.hpp"
#include "app/show_parts.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/directory.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "data/step_rows.hpp"
#include "train/spikes.hpp"
#include "train/training_data.hpp"

namespace forge {

namespace {

// Of the training's files alone.
RunSetup without_validation(const RunSetup& setup) {
  RunSetup s = setup;
  s.deck.data.validation.clear();
  s.deck.data.validation_files.clear();
  s.deck.data.validation_mask_files.clear();
  return s;
}

// Places of the data that a run leaves out behind this checkpoint.
std::vector<NumberRange> excluded_by(const std::string& checkpoint) {
  const CheckpointFiles files(checkpoint, datasets_of({}));
  return spike_state_from(files.facts().spikes, checkpoint).excluded;
}

// A step's batch, sequence by sequence, and how its tokens are text.
class StepBatch {
 public:
  StepBatch(const RunSetup& setup, std::int64_t step)
      : setup_(without_validation(setup)), step_(step), data_(setup_), stream_(data_.stream(setup_)) {
    if (const auto saved = committed_steps(setup_.deck.checkpoint.directory); !saved.empty())
      stream_.exclude(excluded_by(saved.front().path));
    const std::int64_t steps = setup_.deck.train.steps;
    if (step < 1 || step > steps)
      throw BadInput("--samples " + std::to_string(step) + ": the run has the steps 1 to " + std::to_string(steps));
    try {
      text_ = std::make_unique<ModelText>(setup_.deck);
      if (!text_->known()) text_ = nullptr;
    } catch (const BadInput& error) {
      note_ = error.what();
    }
  }

  std::int64_t sequences() const { return setup_.batches.of(step_); }
  std::int64_t first_place() const { return setup_.batches.before(step_); }
  StepRow row(std::int64_t number) const {
    const BatchShare share{setup_.batches, setup_.deck.train.microbatch_sequences, setup_.replicas(), 0};
    return row_of_step(stream_, share, step_, number);
  }
  // Whether ids are known to be text; why not, where the tokenizer can't be read.
  bool has_text() const { return text_ != nullptr; }
  const std::string& note() const { return note_; }
  // Of the inputs of a part.
  std::string text_of(const StepRow& row, const SamplePart& part, std::int64_t most = -1) const {
    TextPrinter printer(*text_);
    std::string text;
    const std::int64_t end = part.at + (most < 0 ? part.length : std::min(most, part.length));
    for (std::int64_t t = part.at; t < end; ++t) text += printer.add(row.sample.tokens[to_size(t)]);
    return text + printer.finish();
  }

 private:
  RunSetup setup_;
  std::int64_t step_;
  TrainingData data_;
  SampleStream stream_;
  std::unique_ptr<ModelText> text_;
  std::string note_;
};

std::int64_t labels_in(const StepRow& row, std::int64_t at, std::int64_t length) {
  const auto begin = row.sample.labels.begin() + at;
  return length - std::count(begin, begin + length, masked_label);
}

std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  return line;
}

// "tokens.bin, tokens 544 to 560, of the document from token 530 (number 12), 16 labels"
std::string place_of(const StepRow& row, const SamplePart& part) {
  std::string text = part.file + formatted(", tokens %lld to %lld", static_cast<long long>(part.first),
                                           static_cast<long long>(part.first + part.length - 1));
  if (part.document_first >= 0)
    text += formatted(", of the document from token %lld", static_cast<long long>(part.document_first));
  if (part.document >= 0) text += formatted(" (number %lld)", static_cast<long long>(part.document));
  return text + ", " + counted(labels_in(row, part.at, part.length), "label");
}

// What is too long for a screen ends behind some tokens.
std::string contents_of(const StepBatch& batch, const StepRow& row, const SamplePart& part) {
  constexpr std::int64_t most_of_text = 160, most_ids = 40;
  const std::int64_t most = batch.has_text() ? most_of_text : most_ids, shown = std::min(most, part.length);
  std::string text;
  if (batch.has_text())
    text = one_line(batch.text_of(row, part, shown));
  else
    for (std::int64_t t = part.at; t < part.at + shown; ++t)
      text += (t > part.at ? " " : "") + std::to_string(row.sample.tokens[to_size(t)]);
  if (shown < part.length) text += " … " + counted(part.length - shown, "token") + " more";
  return text;
}

std::string row_text(const StepBatch& batch, std::int64_t number) {
  const StepRow row = batch.row(number);
  const auto T = static_cast<std::int64_t>(row.sample.labels.size());
  std::string text =
      formatted("  row %lld: %ssample %lld, microbatch %lld of data-parallel rank %lld, ",
                static_cast<long long>(number), row.source.empty() ? "" : ("source " + row.source + ", ").c_str(),
                static_cast<long long>(row.number), static_cast<long long>(row.microbatch),
                static_cast<long long>(row.data_rank)) +
      counted(labels_in(row, 0, T), "label") + "\n";
  for (const SamplePart& part : row.parts)
    text += "    " + place_of(row, part) + "\n      " + contents_of(batch, row, part) + "\n";
  if (row.sample.filled < T) text += "    " + counted(T - row.sample.filled, "token") + " of filler\n";
  return text;
}

JsonLine row_json(const StepBatch& batch, std::int64_t number) {
  const StepRow row = batch.row(number);
  std::vector<JsonLine> parts;
  for (const SamplePart& part : row.parts) {
    JsonLine json;
    json.add("file", part.file).add("first_token", part.first).add("at", part.at).add("tokens", part.length);
    if (part.document_first >= 0) json.add("document_first_token", part.document_first);
    if (part.document >= 0) json.add("document", part.document);
    json.add("labels", labels_in(row, part.at, part.length));
    if (batch.has_text()) json.add("text", batch.text_of(row, part));
    parts.push_back(json);
  }
  JsonLine json;
  json.add("row", number).add("place", row.place);
  if (!row.source.empty()) json.add("source", row.source);
  json.add("sample", row.number).add("microbatch", row.microbatch).add("data_rank", row.data_rank);
  return json.add("parts", parts).add("tokens", row.sample.tokens).add("labels", row.sample.labels);
}

}  // namespace

std::string samples_text(const RunSetup& setup, std::int64_t step) {
  const StepBatch batch(setup, step);
  const std::int64_t first = batch.first_place(), count = batch.sequences();
  std::string text = formatted("step %lld: %s, places %lld to %lld of the run's order\n", static_cast<long long>(step),
                               counted(count, "sequence").c_str(), static_cast<long long>(first),
                               static_cast<long long>(first + count - 1));
  if (!batch.note().empty()) text += "  ids, since the tokenizer can't be read: " + batch.note() + "\n";
  for (std::int64_t row = 0; row < count; ++row) text += row_text(batch, row);
  return text;
}

JsonLine samples_json(const RunSetup& setup, std::int64_t step) {
  const StepBatch batch(setup, step);
  std::vector<JsonLine> rows;
  for (std::int64_t row = 0; row < batch.sequences(); ++row) rows.push_back(row_json(batch, row));
  return JsonLine().add("step", step).add("rows", rows);
}

}  // namespace forge
