#include <algorithm>
#include <chrono>
#include <cstdio>

#include "app/device_fit.hpp"
#include "app/job.hpp"
#include "app/model_deck.hpp"
#include "app/model_text.hpp"
#include "app/trained_model.hpp"
#include "app/verbs.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "config/keys.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "parallel/not_finite.hpp"
#include "tokenizer/unicode.hpp"
#include "train/restart.hpp"
#include "train/sampling.hpp"

namespace forge {

namespace {

std::vector<std::int32_t> prompt_of(const CommandLine& line, const Deck& deck, const ModelText& text) {
  const std::int64_t ids = deck.model.vocabulary;
  std::vector<std::int32_t> prompt;
  for (const auto id : line.prompt_tokens) {
    if (id < 0 || id >= ids)
      throw BadInput("--tokens: id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(ids));
    prompt.push_back(static_cast<std::int32_t>(id));
  }
  if (!line.prompt.empty()) prompt = text.encode(line.prompt, "--prompt");
  if (prompt.empty()) throw BadInput("forge generate needs --prompt TEXT, --tokens 1,2,3 or --prompts FILE");
  return prompt;
}

// Prints each token as it comes: the prompt and its text, or ids where the prompt was ids.
class Printer {
 public:
  Printer(const CommandLine& line, const ModelText& text)
      : text_(text), stops_(line.stop), ids_(!line.prompt_tokens.empty()) {
    if (!ids_) print(printable_text(replace_ill_formed(line.prompt)));
  }
  // Whether no stop has come. `ends`: the token ends the text, and isn't printed as a part of it.
  bool add(std::int32_t id, bool ends) {
    if (ids_) print((first_ ? "" : ",") + std::to_string(id));
    first_ = false;
    const std::string text = ends ? "" : stops_.add(text_.add(id));
    if (!ids_) print(text);
    return stops_.found().empty();
  }
  // A line behind the text.
  void finish() {
    const std::string text = stops_.found().empty() ? stops_.add(text_.finish()) + stops_.finish() : "";
    print((ids_ ? "" : text) + "\n");
  }
  const std::string& stop() const { return stops_.found(); }

 private:
  static void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  TextPrinter text_;
  StopTexts stops_;
  bool ids_, first_ = true;
};

const StorageKind weights_only{false, {}};

std::size_t bytes_of(const std::vector<LocalUnit>& units, const Precision& precision) {
  std::size_t bytes = 0;
  for (const LocalUnit& unit : units)
    for (const UnitBufferSpec& buffer : unit_buffers(unit, precision, weights_only)) bytes += align_up(buffer.bytes());
  return bytes;
}

// The whole model on this rank, whatever the layout that it was trained on.
template <class T>
struct WholeModel {
  using A = acc_t<T>;
  ModelSpec spec;
  Precision precision;
  std::vector<LocalUnit> units;
  Arena arena;
  ParameterStorage<T> storage;
  std::vector<double> biases;  // of the routers, (layers, E); empty: the model has none

  WholeModel(const Deck& deck, Stream& stream)
      : spec(resolve_model(deck.model)),
        precision(precision_of(deck)),
        units(whole_units(spec)),
        arena(bytes_of(units, precision) + not_finite_bytes),
        storage(arena, stream, units, precision, weights_only),
        biases(spec.options.router_bias ? to_size(bias_layers() * spec.E()) : 0) {}

  // From where choose_parameters has put it into the deck. Returns that; `notes`: for the log.
  std::string load(const Deck& deck, Communicator& rank, Stream& stream, std::vector<std::string>& notes) {
    std::string from = initial_values_text(deck);
    if (!deck.checkpoint.model_from.empty()) {
      from = load_checkpoint(deck, rank, stream, notes);
    } else if (deck.model.load_weights) {
      load_hf_tensors(deck.model.hf, spec, deck.train.seed, storage, stream);
      start_adapters(deck, spec, storage, stream, {}, nullptr);
      biases = load_router_biases(deck.model.hf, spec);
      from = model_hf_text(deck, spec, notes) + adapter_text(deck);
    } else {
      storage.initialise(stream, deck.train.seed);
      if (deck.model.adapter.load.empty()) return from;
      start_adapters(deck, spec, storage, stream, {}, nullptr);
    }
    refuse_not_finite(storage, biases, stream, arena, deck);
    return from;
  }

 private:
  std::int64_t bias_layers() const { return spec.L() + spec.options.mtp_depth; }

  std::string load_checkpoint(const Deck& deck, Communicator& rank, Stream& stream, std::vector<std::string>& notes) {
    std::vector<StateTensor> state = state_of(storage, spec.E(), StateUse::read, {true, false});
    std::vector<A> stored(biases.size());
    const Buffer memory(std::max<std::size_t>(stored.size(), 1) * sizeof(A));
    View<A, 2> view;
    if (!stored.empty()) view = View<A, 2>(reinterpret_cast<A*>(memory.data()), {{bias_layers(), spec.E()}});
    fill_zero(stream, memory.data(), memory.bytes());
    for (StateTensor& tensor : bias_state(spec, view)) state.push_back(std::move(tensor));
    const std::string from = load_model(rank, stream, state, deck, notes);
    storage.update_copies(stream);
    copy_to_host(stream, stored.data(), memory.data(), stored.size() * sizeof(A));
    stream.synchronize();
    biases.assign(stored.begin(), stored.end());
    return from;
  }
};

void say(const std::string& text) {
  std::fprintf(stderr, "forge: %s\n", text.c_str());
}

// Whether a token ends the text.
bool is_end(const SamplingOptions& options, std::int32_t id) {
  return std::find(options.ends.begin(), options.ends.end(), id) != options.ends.end();
}

// How fast the prompt was read and the text written. The first token of the text counts for the prompt's pass, which
// gives its logits.
class Rates {
 public:
  void add() {
    last_ = std::chrono::steady_clock::now();
    if (++tokens_ == 1) first_ = last_;
  }
  std::string line(std::size_t prompt) const {
    return "prompt " + rate(prompt, first_ - start_) +
           (tokens_ > 1 ? ", text " + rate(tokens_ - 1, last_ - first_) : std::string());
  }

 private:
  static std::string rate(std::size_t tokens, std::chrono::duration<double> time) {
    const double each = static_cast<double>(tokens) / std::max(time.count(), 1e-9);
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", each < 10 ? 2 : 0, each);
    return std::string(text) + " tokens/s";
  }
  using Time = std::chrono::steady_clock::time_point;
  Time start_ = std::chrono::steady_clock::now(), first_ = start_, last_ = start_;
  std::size_t tokens_ = 0;
};

template <class T>
void generate(const CommandLine& line, const Deck& deck, const std::vector<std::int32_t>& prompt, const ModelText& text,
              const World& world, const std::string& choice) {
  const auto capacity = static_cast<std::int64_t>(prompt.size()) + line.length;
  if (deck.model.max_positions > 0 && capacity > deck.model.max_positions)
    throw BadInput("prompt and --length need " + std::to_string(capacity) + " positions, the model has " +
                   std::to_string(deck.model.max_positions));
  refuse_long_text(deck.model, capacity);
  refuse_more_than_is_left(bytes_of(whole_units(resolve_model(deck.model)), precision_of(deck)), "the model's weights");
  Stream stream(start_threads_of(deck, world));
  WholeModel<T> model(deck, stream);
  std::vector<std::string> notes;
  const std::string from = model.load(deck, *world.make_world(), stream, notes);
  say(parameters_line(from) + choice);
  for (const std::string& note : notes) say(note);
  std::vector<const T*> weights;
  for (std::size_t u = 0; u < model.storage.size(); ++u) weights.push_back(model.storage.unit(u).whole.data);
  Decoder<T> decoder(stream, model.spec, model.precision, model.units, weights, capacity, model.biases,
                     rounding_options(deck));
  SamplingOptions options{line.temperature, line.top_k, line.top_p, line.sampling_seed, {}};
  if (!line.ignore_end) options.ends = text.ends();
  Printer printer(line, text);
  Rates rates;
  const auto tokens = continue_tokens(decoder, prompt, line.length, options, nullptr, [&](std::int32_t id) {
    rates.add();
    return printer.add(id, is_end(options, id));
  });
  printer.finish();
  const std::string count = std::to_string(tokens.size()) + (tokens.size() == 1 ? " token" : " tokens");
  if (!printer.stop().empty())
    say("ended before the stop text, behind " + count);
  else if (is_end(options, tokens.back()))
    say("ended with " + text.name_of(tokens.back()) + ", behind " + count);
  say(rates.line(prompt.size()));
}

}  // namespace

void run_generate(const CommandLine& line, const World& world) {
  if (!line.prompts.empty()) return run_generate_lines(line, world);
  if (world.size() > 1)
    throw BadInput(
        "forge generate continues one prompt as one rank, which holds the whole model; legal: no launcher, or "
        "--prompts "
        "FILE --output FILE, which run on any layout");
  Deck deck = load_deck(line, Needs::model_only, 1);
  refuse_scales_of_sequences(line, deck);
  const ModelText text(deck, line.tokenizer, line.pattern);
  const auto prompt = prompt_of(line, deck, text);
  if (!line.stop.empty() && !text.known())
    throw BadInput("--stop: no tokenizer is known, so that tokens have no text; legal: model.tokenizer or --tokenizer");
  const std::string choice = choose_parameters(line, deck, *world.make_world());
  with_compute_type(deck,
                    [&]<class T>(std::type_identity<T>) { generate<T>(line, deck, prompt, text, world, choice); });
}

}  // namespace forge
