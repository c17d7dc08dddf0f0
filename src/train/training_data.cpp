#include <cmath>
#include <limits>

#include "config/mixture_keys.hpp"
#include "config/report.hpp"
#include "core/bytes.hpp"
#include "core/random.hpp"
#include "data/validation.hpp"
#include "train/training_data.hpp"

namespace forge {

namespace {

TokenSetOptions token_options(const RunSetup& s, const std::vector<std::string>& files,
                              const std::vector<std::string>& masks, Heartbeat* heartbeat) {
  const DataDeck& data = s.deck.data;
  const std::string plans =
      data.packing_directory.empty() ? s.deck.output.directory + "/packing" : data.packing_directory;
  return {files,
          data.dtype,
          s.deck.train.sequence_tokens,
          s.spec.V(),
          data.document_end_token,
          data.document_ends,
          masks,
          data.packing,
          plans,
          heartbeat};
}

constexpr const char* subject = "the data";

// A name's own number, whatever other sources there are (FNV-1a).
std::uint64_t number_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

std::int64_t most_samples(std::int64_t max_epochs, AtEnd at_end, std::int64_t samples) {
  const std::int64_t epochs = max_epochs > 0 ? max_epochs : at_end == AtEnd::error ? 1 : 0;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return epochs == 0 || epochs > most / samples ? most : epochs * samples;
}

// The sources' weights in a phase that has some, by their order; null: the deck's own, or their samples.
std::vector<std::int64_t> weights_of(const DataDeck& data, const PhaseDeck* phase,
                                     const std::vector<DataSource>& sources) {
  std::vector<double> weights;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const SourceDeck& source = data.sources[i];
    double weight = phase ? 0 : source.weight >= 0 ? source.weight : static_cast<double>(sources[i].sequence.count);
    for (const auto& [name, value] : phase ? phase->weights : std::vector<std::pair<std::string, double>>())
      if (name == source.name) weight = value;
    weights.push_back(data.temperature == 1 || weight == 0 ? weight : std::pow(weight, 1 / data.temperature));
    if (weight > 0 && !std::isnormal(weights.back()))
      throw BadInput("data.temperature = " + format_exact(data.temperature) + ": the weight of " + source.name + ", " +
                     format_exact(weight) + ", to the power of 1 / temperature is " + format_exact(weights.back()) +
                     "; legal: a temperature nearer to 1");
    names.push_back(source.name);
  }
  return whole_weights(weights, names);
}

}  // namespace

TrainingData::TrainingData(const RunSetup& s, Heartbeat* heartbeat) {
  const DataDeck& data = s.deck.data;
  Report report;
  const auto open = [&](const std::vector<std::string>& files, const std::vector<std::string>& masks) {
    std::unique_ptr<TokenSet> set;
    report.collect([&] { set = std::make_unique<TokenSet>(token_options(s, files, masks, heartbeat), false); });
    return set;
  };
  if (data.sources.empty()) training.push_back(open(data.files, data.mask_files));
  for (const SourceDeck& source : data.sources) training.push_back(open(source.files, source.mask_files));
  for (const ValidationDeck& held_out : data.held_out())
    validation.push_back({held_out, open(held_out.files, held_out.mask_files)});
  for (const std::string& path : data.tasks)
    report.collect([&] { tasks.push_back(read_choice_task(path, s.spec.V(), s.deck.train.sequence_tokens)); });
  report.throw_if_any(subject);
  for (const auto& set : training) report.collect([&] { set->open_plan(); });
  for (const HeldOut& set : validation) report.collect([&] { set.tokens->open_plan(); });
  report.throw_if_any(subject);
}

void TrainingData::check(const RunSetup& s) const {
  Sample sample(s.deck.train.sequence_tokens);
  const SampleStream drawn = stream(s);
  Report report;
  for (const DataSource& source : drawn.sources())
    report.collect([&] { source.set->read(source.sequence.at(0), sample); });
  report.collect([&] { drawn.check_ends(s.deck.train.steps, s.batches); });
  for (const HeldOut& set : validation) {
    report.collect([&] { set.tokens->read(0, sample); });
    report.collect([&] { validation_sequences(*set.tokens, set.deck, s.deck.train.validation_sequences); });
  }
  report.throw_if_any(subject);
}

SampleStream TrainingData::stream(const RunSetup& s) const {
  const DataDeck& data = s.deck.data;
  std::vector<DataSource> sources;
  for (std::size_t i = 0; i < training.size(); ++i) {
    const std::int64_t samples = training[i]->samples();
    const bool mixed = !data.sources.empty();
    const std::string name = mixed ? data.sources[i].name : "";
    const std::uint64_t seed = mixed ? mix(s.deck.train.seed, number_of(name)) : s.deck.train.seed;
    sources.push_back({name,
                       training[i].get(),
                       {data.order, seed, samples},
                       most_samples(mixed ? data.sources[i].max_epochs : 0, data.at_end, samples)});
  }
  const auto first_place = [&](const PhaseDeck& phase) { return s.batches.before(first_step_of(phase, s.deck.train)); };
  std::vector<MixtureOrder::Phase> phases;
  if (data.phases.empty() || first_place(data.phases.front()) > 0) phases.push_back({0, {}});
  for (const PhaseDeck& phase : data.phases) phases.push_back({first_place(phase), {}});
  const std::size_t own = phases.size() - data.phases.size();  // phases before the deck's
  for (std::size_t i = 0; i < phases.size() && !data.sources.empty(); ++i) {
    const PhaseDeck* const phase = i < own ? nullptr : &data.phases[i - own];
    phases[i].weights = weights_of(data, phase && !phase->weights.empty() ? phase : nullptr, sources);
  }
  SampleStream result = data.sources.empty() ? SampleStream(sources.front()) : SampleStream(std::move(sources), phases);
  if (!data.has_pieces()) return result;
  std::vector<SampleStream::PiecePhase> pieces;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const std::int64_t tokens = i < own ? 0 : data.phases[i - own].sequence_tokens;
    pieces.push_back(
        {phases[i].begin,
         {tokens > 0 ? tokens : s.deck.train.sequence_tokens, data.positions == PositionOrigin::document}});
  }
  result.cut(std::move(pieces));
  return result;
}

std::vector<std::string> TrainingData::lines(const RunSetup& s) const {
  const SampleStream drawn = stream(s);
  const std::int64_t places = s.batches.before(s.deck.train.steps + 1);
  std::vector<std::string> text;
  for (std::size_t i = 0; i < training.size(); ++i) {
    const TokenSet& set = *training[i];
    const std::string name = drawn.sources()[i].name;
    if (drawn.apart() > 0) {
      const std::int64_t samples = drawn.drawn(i, places);
      text.push_back(formatted(
          "%s: %lld of %s (%.2f %%), %.2f epochs of %lld", name.c_str(), static_cast<long long>(samples),
          counted(places, "sample").c_str(), 100.0 * static_cast<double>(samples) / static_cast<double>(places),
          static_cast<double>(samples) / static_cast<double>(set.samples()), static_cast<long long>(set.samples())));
    }
    if (const PackingPlan* plan = set.plan()) {
      const std::int64_t room = plan->samples() * set.sequence_tokens();
      text.push_back(formatted("%s%s%s packed into %s: fill %.2f %%, %s of padding", name.c_str(),
                               name.empty() ? "" : ": ", counted(plan->documents(), "document").c_str(),
                               counted(plan->samples(), "sample").c_str(),
                               100.0 * static_cast<double>(plan->tokens()) / static_cast<double>(room),
                               counted(room - plan->tokens(), "token").c_str()));
    }
  }
  return text;
}

std::int64_t TrainingData::sum(std::int64_t (TokenSet::*count)() const) const {
  std::int64_t all = 0;
  for (const auto& set : training) all += (*set.*count)();
  return all;
}

}  // namespace forge
