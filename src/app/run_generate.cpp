#include <cstdio>

#include "app/job.hpp"
#include "app/model_text.hpp"
#include "app/trained_model.hpp"
#include "app/verbs.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "config/fp8_recipe.hpp"
#include "config/keys.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
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
  if (prompt.empty()) throw BadInput("forge generate needs --prompt TEXT or --tokens 1,2,3");
  return prompt;
}

// Prints each token as it comes: the prompt and its text, or ids where the prompt was ids.
class Printer {
 public:
  Printer(const CommandLine& line, const ModelText& text) : text_(text), ids_(!line.prompt_tokens.empty()) {
    if (!ids_) print(printable_text(replace_ill_formed(line.prompt)));
  }
  void add(std::int32_t id) {
    print(ids_ ? (first_ ? "" : ",") + std::to_string(id) : text_.add(id));
    first_ = false;
  }
  void finish() { print((ids_ ? "" : text_.finish()) + "\n"); }

 private:
  static void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  TextPrinter text_;
  bool ids_, first_ = true;
};

const StorageKind weights_only{false, {}};

std::size_t bytes_of(const std::vector<LocalUnit>& units, const Precision& precision) {
  std::size_t bytes = 0;
  for (const LocalUnit& unit : units)
    for (const UnitBufferSpec& buffer : unit_buffers(unit, precision, weights_only)) bytes += align_up(buffer.bytes());
  return bytes;
}

// A token's scales may not depend on the text behind it, nor on how much of it was read at a time; and no history is
// read here.
void refuse_scales_of_sequences(const Deck& deck) {
  const TrainDeck& t = deck.train;
  const Fp8RecipeRow& recipe = properties_of(t.fp8_recipe);
  if (t.precision != PrecisionName::fp8 || recipe.by_token()) return;
  throw BadInput("forge generate: train.fp8_recipe = " + std::string(recipe.word) +
                 (recipe.has_history() ? " has scales of a training's steps, which a generation doesn't read"
                                       : " has scales of whole sequences, which a generation doesn't know yet") +
                 "; legal: row | block "
                 "(--set train.fp8_recipe=row), or --precision bf16");
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
        arena(bytes_of(units, precision)),
        storage(arena, stream, units, precision, weights_only),
        biases(spec.options.router_bias ? to_size(bias_layers() * spec.E()) : 0) {}

  // From where choose_parameters has put it into the deck. Returns what to say of it.
  std::vector<std::string> load(const Deck& deck, Communicator& rank, Stream& stream) {
    std::vector<std::string> notes;
    if (!deck.checkpoint.model_from.empty()) {
      load_checkpoint(deck, rank, stream, notes);
      return notes;
    }
    load_parameters(deck, storage, stream);
    if (deck.model.load_weights) biases = load_router_biases(deck.model.hf, spec);
    return {parameters_text(deck)};
  }

 private:
  std::int64_t bias_layers() const { return spec.L() + spec.options.mtp_depth; }

  void load_checkpoint(const Deck& deck, Communicator& rank, Stream& stream, std::vector<std::string>& notes) {
    std::vector<StateTensor> state = state_of(storage, spec.E(), StateUse::read, {true, false});
    std::vector<A> stored(biases.size());
    const Buffer memory(std::max<std::size_t>(stored.size(), 1) * sizeof(A));
    View<A, 2> view;
    if (!stored.empty()) view = View<A, 2>(reinterpret_cast<A*>(memory.data()), {{bias_layers(), spec.E()}});
    fill_zero(stream, memory.data(), memory.bytes());
    for (StateTensor& tensor : bias_state(spec, view)) state.push_back(std::move(tensor));
    load_model(rank, stream, state, deck, notes);
    storage.update_copies(stream);
    copy_to_host(stream, stored.data(), memory.data(), stored.size() * sizeof(A));
    stream.synchronize();
    biases.assign(stored.begin(), stored.end());
  }
};

template <class T>
void generate(const CommandLine& line, const Deck& deck, const std::vector<std::int32_t>& prompt, const ModelText& text,
              const World& world) {
  const auto capacity = static_cast<std::int64_t>(prompt.size()) + line.length;
  if (deck.model.max_positions > 0 && capacity > deck.model.max_positions)
    throw BadInput("prompt and --length need " + std::to_string(capacity) + " positions, the model has " +
                   std::to_string(deck.model.max_positions));
  Stream stream(threads_of(deck, world));
  WholeModel<T> model(deck, stream);
  for (const std::string& note : model.load(deck, *world.make_world(), stream))
    std::fprintf(stderr, "forge: %s\n", note.c_str());
  std::vector<const T*> weights;
  for (std::size_t u = 0; u < model.storage.size(); ++u) weights.push_back(model.storage.unit(u).whole.data);
  Fp8Options fp8 = fp8_options(deck);
  fp8.tensor_cores = false;  // their tiles have 128 rows
  Decoder<T> decoder(stream, model.spec, model.precision, model.units, weights, capacity, model.biases, fp8);
  Printer printer(line, text);
  continue_tokens(decoder, prompt, line.length, {line.temperature, line.top_k, line.top_p, line.sampling_seed}, nullptr,
                  [&](std::int32_t id) { printer.add(id); });
  printer.finish();
}

}  // namespace

void run_generate(const CommandLine& line, const World& world) {
  if (world.size() > 1)
    throw BadInput("forge generate runs as one rank, which holds the whole model; start it without a launcher");
  Deck deck = load_deck(line, Needs::model_only, 1);
  refuse_scales_of_sequences(deck);
  const ModelText text(deck, line.tokenizer, line.pattern);
  const auto prompt = prompt_of(line, deck, text);
  choose_parameters(line, deck, true);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { generate<T>(line, deck, prompt, text, world); });
}

}  // namespace forge
