#include "train/references.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "checkpoint/storage_state.hpp"
#include "config/file_handle.hpp"
#include "config/keys.hpp"
#include "config/rounding_options.hpp"
#include "core/bytes.hpp"
#include "core/random.hpp"
#include "core/to_size.hpp"
#include "data/validation.hpp"
#include "train/batch_feed.hpp"

namespace forge {

namespace {

struct ReferenceHeader {
  std::array<char, 8> magic{'f', 'o', 'r', 'g', 'e', 'l', 'p', '1'};
  std::uint64_t data = 0, weights = 0, values = 0;
};

std::vector<const TokenSet*> sets_of_pairs(const TrainingData& data) {
  std::vector<const TokenSet*> sets;
  for (const auto& set : data.training) sets.push_back(set.get());
  for (const TrainingData::HeldOut& set : data.validation) sets.push_back(set.tokens.get());
  return sets;
}

std::uint64_t sum_of_bits(std::uint64_t sum, const std::vector<double>& values) {
  for (const double value : values) sum += std::bit_cast<std::uint64_t>(value);
  return sum;
}

std::uint64_t place_of_value(std::int64_t number) {
  return sizeof(ReferenceHeader) + sizeof(double) * static_cast<std::uint64_t>(number);
}

constexpr const char* anew =
    "; legal: another preference.reference, or remove the file, and a run that starts with "
    "step 1 makes it anew";

ReferenceHeader header_of(const FileHandle& file, const std::string& path) {
  ReferenceHeader header;
  const ReferenceHeader wanted;
  if (file.size() < sizeof header) throw BadInput(path + ": ends within the header of 32 bytes" + anew);
  file.read_at(0, &header, sizeof header);
  if (header.magic != wanted.magic)
    throw BadInput(path + ": is no file of log-probabilities: the word forgelp1 is missing" + anew);
  return header;
}

void compare_keys(const ReferenceHeader& found, const ReferenceHeader& wanted, const std::string& path) {
  if (found.data != wanted.data || found.values != wanted.values)
    throw BadInput(path + ": log-probabilities of other pairs, or of other masks or train.sequence_tokens" + anew);
  if (found.weights != wanted.weights)
    throw BadInput(path +
                   ": log-probabilities by another model than the run starts with: other weights, keys of model, scale "
                   "of adapters or train.precision" +
                   anew);
}

// What a rank knows of a microbatch's texts, added to those of all data-parallel ranks from `at` on.
void add_texts(const HostBatch& batch, const std::vector<double>& log_likelihoods, std::vector<double>& sums,
               std::size_t at) {
  for (std::size_t i = 0; i < log_likelihoods.size(); ++i)
    if (batch.texts[i] >= 0 && batch.labels[i] != masked_label)
      sums[at + to_size(batch.texts[i])] += log_likelihoods[i];
}

// Log-probabilities of the texts of a set from pair `pair` on.
template <class T>
class TextScorer {
 public:
  explicit TextScorer(Session<T>& session) : session_(session), batches_(validation_batches_of(session.setup())) {}

  void score(const TokenSet& set, std::int64_t pair,
             const std::function<void(std::int64_t pair, const std::vector<double>& values)>& take) {
    const RunSetup& s = session_.setup();
    ValidationSet pairs(set, set.samples(), s.replicas(), s.share.data_rank, batches_);
    const std::int64_t at_once = s.deck.train.microbatch_sequences * s.replicas();
    constexpr std::int64_t microbatches = 16;  // whose sums travel together
    for (std::int64_t m = pair / at_once; m < pairs.microbatches(); m += microbatches) {
      const std::int64_t end = std::min(m + microbatches, pairs.microbatches()), first = m * at_once;
      std::vector<double> sums(to_size(2 * at_once * (end - m)), 0);
      for (std::int64_t i = m; i < end; ++i) add(pairs.microbatch(i), sums, to_size(2 * at_once * (i - m)));
      session_.mesh().world().sum_host(std::span<double>(sums));
      sums.resize(to_size(2 * (std::min(first + at_once * (end - m), set.samples()) - first)));
      take(first, sums);
    }
  }

 private:
  static ValidationBatches validation_batches_of(const RunSetup& s) {
    return ValidationBatches(s.deck.train.microbatch_sequences, s.deck.train.sequence_tokens, s.spec.V(), s.rows());
  }

  // Tensor-parallel ranks have the same likelihoods, of which the first one's count.
  void add(const HostBatch& batch, std::vector<double>& sums, std::size_t at) {
    const ScoreBuffers& memory = session_.score_buffers();
    RowScores scores;
    const auto rows = static_cast<std::int64_t>(batch.labels.size());
    if (!memory.beaten.empty())
      scores = {View<double, 1>(memory.log_likelihood.row(0), {{rows}}),
                View<std::int32_t, 1>(memory.beaten.row(0), {{rows}})};
    BatchFeed feed(batch);
    session_.evaluate_microbatch(feed, 0, scores);
    std::vector<double> values(scores.empty() || session_.setup().share.tp_rank > 0 ? 0 : batch.labels.size());
    if (!values.empty())
      copy_to_host(session_.stream(), values.data(), scores.log_likelihood.data, values.size() * sizeof(double));
    session_.stream().synchronize();
    session_.beat();
    const std::int64_t own = 2 * session_.setup().share.data_rank * batch.microbatch_sequences;
    add_texts(batch, values, sums, at + to_size(own));
  }

  Session<T>& session_;
  ValidationBatches batches_;
};

// Of the model's weights, of the adapters', and how many elements of adapters' B aren't 0.
struct WeightSums {
  std::uint64_t model = 0, adapters = 0;
  std::int64_t beside = 0;
};

// Adds those over the elements that this rank has of a unit; each element of the model is one rank's.
template <class T>
void add_unit(const ParameterStorage<T>& storage, std::size_t u, Stream& stream, WeightSums& sums) {
  const RankUnit<T>& s = storage.unit(u);
  const bool adapter = is_adapter(s.local.kind);
  std::uint64_t& sum = adapter ? sums.adapters : sums.model;
  const auto add = [&](const auto& weights) {
    using V = std::remove_const_t<std::remove_pointer_t<decltype(weights.data)>>;
    constexpr std::int64_t most = std::int64_t{1} << 22;
    for (const Range& range : written_ranges(storage.local(u)))
      for (std::int64_t begin = range.begin; begin < range.end; begin += most) {
        const Range part{begin, std::min(begin + most, range.end)};
        std::vector<V> values(to_size(part.size()));
        copy_to_host(stream, values.data(), weights.data + (begin - s.state.begin), values.size() * sizeof(V));
        stream.synchronize();
        for (const ElementRun& run : runs_of(storage.local(u), part)) {
          if (!run.piece->owned) continue;
          const Parameter& parameter = storage.local(u).parameters[run.piece->parameter];
          const std::uint64_t name = hash_of(parameter.name);
          const bool is_b = adapter && parameter.name.ends_with(".lora_b");
          for (std::int64_t i = 0; i < run.count; ++i) {
            const auto value = static_cast<double>(values[to_size(run.local - begin + i)]);
            sum += mix(mix(name, static_cast<std::uint64_t>(run.global + i)), std::bit_cast<std::uint64_t>(value));
            sums.beside += is_b && value != 0;
          }
        }
      }
  };
  s.master_is_copy ? add(s.copy) : add(s.master);
}

// Of all that log-probabilities follow from beside weights: the model's keys, arithmetic, and the scale of adapters.
std::uint64_t key_of_model(const Deck& deck, bool adapters) {
  std::string text;
  for (const Key& key : all_keys()) {
    const bool model =
        key.section == "model" && (key.on_restart == OnRestart::stays || key.name.starts_with("capacity_"));
    const bool scale = adapters && key.section == "adapter" &&
                       (key.name == "rank" || key.name == "alpha" || key.name == "rank_stabilised");
    if (model || scale || changes_products(key, deck)) text += key.qualified() + ": " + value_text(key, deck) + "\n";
  }
  return hash_of(text);
}

// Of a pair both texts have labels; `where`: in which data.
void check_labels(const Sample& sample, std::int64_t pair, const std::string& where) {
  std::array<std::int64_t, 2> labels{};
  for (std::size_t t = 0; t < to_size(sample.filled); ++t)
    labels.at(to_size(sample.documents[t] % 2)) += sample.labels[t] != masked_label;
  for (const std::size_t text : {0u, 1u})
    if (labels.at(text) == 0)
      throw BadInput("pair " + std::to_string(pair) + " of " + where + ", counted from 0: its " +
                     (text == 0 ? "preferred" : "other") +
                     " text has no label, as its mask says; legal: at least one label in each text");
}

// The file while it grows, of the first rank; of what it holds so far the whole pairs count.
class GrowingReferences {
 public:
  GrowingReferences(const std::string& path, const ReferenceHeader& header)
      : path_(path), header_(header), file_(FileHandle::open_to_append(path + ".partial")) {
    ReferenceHeader found;
    const std::uint64_t bytes = file_.size();
    if (bytes >= sizeof found) file_.read_at(0, &found, sizeof found);
    if (bytes >= sizeof found && std::memcmp(&found, &header, sizeof found) == 0) {
      done_ = static_cast<std::int64_t>((bytes - sizeof found) / (2 * sizeof(double)) * 2);
      done_ = std::min(done_, static_cast<std::int64_t>(header.values));
    } else {
      file_.resize(0);
      file_.write_at(0, &header, sizeof header);
    }
  }

  std::int64_t done() const { return done_; }
  void write(std::int64_t first, const std::vector<double>& values) const {
    file_.write_at(place_of_value(first), values.data(), values.size() * sizeof(double));
  }
  void finish() {
    std::vector<double> all(to_size(static_cast<std::int64_t>(header_.values)));
    file_.read_at(sizeof header_, all.data(), all.size() * sizeof(double));
    const std::uint64_t sum = sum_of_bits(0, all);
    file_.resize(place_of_value(static_cast<std::int64_t>(all.size())));
    file_.write_at(place_of_value(static_cast<std::int64_t>(all.size())), &sum, sizeof sum);
    file_.commit_as(path_);
  }

 private:
  std::string path_;
  ReferenceHeader header_;
  FileHandle file_;
  std::int64_t done_ = 0;
};

}  // namespace

std::string reference_path(const Deck& deck) {
  return deck.preference.reference.empty() ? deck.output.directory + "/reference.logp" : deck.preference.reference;
}

std::int64_t text_count(const TrainingData& data) {
  std::int64_t texts = 0;
  for (const TokenSet* set : sets_of_pairs(data)) texts += 2 * set->samples();
  return texts;
}

std::uint64_t key_of_texts(const TrainingData& data, Heartbeat* heartbeat) {
  std::uint64_t key = 0;
  std::size_t number = 0;
  for (const TokenSet* set : sets_of_pairs(data)) {
    const std::string where = number++ < data.training.size() ? "the training data" : "held-out data";
    Sample sample(set->sequence_tokens());
    key = mix(key, static_cast<std::uint64_t>(set->samples()));
    for (std::int64_t i = 0; i < set->samples(); ++i) {
      set->read(i, sample);
      check_labels(sample, i, where);
      for (std::size_t t = 0; t < to_size(sample.filled); ++t) {
        const auto word = [](std::int32_t value) {
          return static_cast<std::uint64_t>(static_cast<std::uint32_t>(value));
        };
        key = mix(key, word(sample.tokens[t]) << 32 | word(sample.labels[t]));
        key = mix(key, word(sample.documents[t]));
      }
      if (heartbeat && i % 256 == 0) heartbeat->beat();
    }
  }
  return key;
}

template <class T>
std::uint64_t key_of_weights(Session<T>& session) {
  WeightSums sums;
  for (std::size_t u = 0; u < session.storage().size(); ++u) {
    add_unit(session.storage(), u, session.stream(), sums);
    session.beat();
  }
  // Halves, so that no sum overflows.
  const auto low = [](std::uint64_t sum) { return static_cast<std::int64_t>(sum & 0xffffffff); };
  const auto high = [](std::uint64_t sum) { return static_cast<std::int64_t>(sum >> 32); };
  std::array<std::int64_t, 5> all{low(sums.model), high(sums.model), low(sums.adapters), high(sums.adapters),
                                  sums.beside};
  session.mesh().world().sum_host(all);
  const auto whole = [&](std::size_t i) {
    return static_cast<std::uint64_t>(all[i]) + (static_cast<std::uint64_t>(all[i + 1]) << 32);
  };
  const bool adapters = all[4] > 0;
  return whole(0) + (adapters ? whole(2) : 0) + key_of_model(session.setup().deck, adapters);
}

template <class T>
void score_texts(Session<T>& session, const TrainingData& data, std::int64_t first,
                 const std::function<void(std::int64_t first, const std::vector<double>& values)>& take) {
  TextScorer<T> scorer(session);
  session.begin_evaluation();
  std::int64_t before = 0;
  for (const TokenSet* set : sets_of_pairs(data)) {
    const std::int64_t texts = 2 * set->samples();
    if (first < before + texts)
      scorer.score(*set, std::max<std::int64_t>(first - before, 0) / 2,
                   [&](std::int64_t pair, const std::vector<double>& values) {
                     for (const double value : values)
                       if (!std::isfinite(value))
                         throw Error(
                             "the reference's log-probability of a text is NaN or Inf, by weights that are "
                             "all finite; legal: a precision that holds the model's numbers",
                             ExitCode::not_finite);
                     take(before + 2 * pair, values);
                   });
    before += texts;
  }
  session.evaluated_loss();
}

void give_references(TrainingData& data, const std::vector<double>& all) {
  auto at = all.begin();
  const auto give = [&](TokenSet& set) {
    const auto end = at + 2 * set.samples();
    set.set_references({at, end});
    at = end;
  };
  for (const auto& set : data.training) give(*set);
  for (const TrainingData::HeldOut& set : data.validation) give(*set.tokens);
}

std::uint64_t read_references(const std::string& path, TrainingData& data) {
  const FileHandle file = FileHandle::open_to_read(path, "log-probabilities of the reference (preference.reference)");
  const ReferenceHeader header = header_of(file, path);
  const std::int64_t texts = text_count(data);
  if (header.values != static_cast<std::uint64_t>(texts) || file.size() != place_of_value(texts) + sizeof(double))
    throw BadInput(path + ": " + std::to_string(file.size()) + " bytes and " + std::to_string(header.values) +
                   " log-probabilities for the " + std::to_string(texts) + " texts of the data" + anew);
  std::vector<double> all(to_size(texts));
  std::uint64_t stored = 0;
  file.read_at(sizeof header, all.data(), all.size() * sizeof(double));
  const std::uint64_t sum = sum_of_bits(0, all);
  file.read_at(place_of_value(texts), &stored, sizeof stored);
  if (stored != sum) throw BadInput(path + ": is damaged: its values are not those that were written" + anew);
  give_references(data, all);
  return mix(sum, header.data);
}

template <class T>
ReferenceKeys check_references(Session<T>& session, TrainingData& data, const std::string& path) {
  Communicator& ranks = session.mesh().world();
  ReferenceHeader header;
  header.values = static_cast<std::uint64_t>(text_count(data));
  header.weights = key_of_weights(session);
  std::int64_t there = 0;
  if (ranks.rank() == 0) {
    header.data = key_of_texts(data, session.heartbeat());
    std::error_code missing;
    there = std::filesystem::exists(path, missing);
    if (there > 0)
      compare_keys(header_of(FileHandle::open_to_read(path, "log-probabilities of the reference"), path), header, path);
  }
  ranks.max_host({&there, 1});
  if (there > 0) read_references(path, data);
  return {header.data, header.weights, there > 0};
}

template <class T>
std::string make_references(Session<T>& session, const TrainingData& data, const std::string& path,
                            const ReferenceKeys& keys) {
  Communicator& ranks = session.mesh().world();
  const bool first = ranks.rank() == 0;
  ReferenceHeader header;
  header.values = static_cast<std::uint64_t>(text_count(data));
  header.weights = keys.weights;
  header.data = keys.data;
  std::int64_t done = -1;  // the file is whole
  std::optional<GrowingReferences> file;
  std::error_code missing;
  if (first && !keys.whole) {
    if (const auto directory = std::filesystem::path(path).parent_path(); !directory.empty())
      std::filesystem::create_directories(directory, missing);
    file.emplace(path, header);
    done = file->done();
  }
  ranks.max_host({&done, 1});
  const std::string texts = counted(static_cast<std::int64_t>(header.values), "text");
  if (done < 0) return "  reference " + path + ": log-probabilities of " + texts;
  if (done < static_cast<std::int64_t>(header.values))
    score_texts<T>(session, data, done, [&](std::int64_t at, const std::vector<double>& values) {
      if (file) file->write(at, values);
    });
  if (file) file->finish();
  ranks.barrier();
  return "  reference " + path + ": log-probabilities of " + texts + ", of which " + std::to_string(done) +
         " were there";
}

FORGE_INSTANTIATE_FUNCTION(key_of_weights);
FORGE_INSTANTIATE_FUNCTION(score_texts);
FORGE_INSTANTIATE_FUNCTION(check_references);
FORGE_INSTANTIATE_FUNCTION(make_references);

}  // namespace forge
