#include <cstdio>

#include "app/job.hpp"
#include "app/verbs.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "core/bytes.hpp"
#include "train/report.hpp"
#include "train/sampling.hpp"

namespace forge {

namespace {

std::vector<std::int32_t> prompt_of(const CommandLine& line, const ModelSpec& spec) {
  std::vector<std::int32_t> prompt;
  for (const auto id : line.prompt_tokens) {
    if (id < 0 || id >= spec.V())
      throw BadInput("--tokens: id " + std::to_string(id) + " is outside the vocabulary of " +
                     std::to_string(spec.V()));
    prompt.push_back(static_cast<std::int32_t>(id));
  }
  for (const char c : line.prompt) prompt.push_back(static_cast<unsigned char>(c));
  if (!line.prompt.empty() && spec.V() < 256)
    throw BadInput("--prompt needs the byte vocabulary (256 ids), this model has " + std::to_string(spec.V()) +
                   "; give the prompt as --tokens");
  if (prompt.empty()) throw BadInput("forge generate needs --prompt TEXT or --tokens 1,2,3");
  return prompt;
}

void print_tokens(const CommandLine& line, const std::vector<std::int32_t>& tokens) {
  if (line.prompt_tokens.empty()) {
    std::string text = line.prompt;
    for (const auto t : tokens) text += t < 256 ? static_cast<char>(t) : '\n';
    std::printf("%s\n", printable(text).c_str());
    return;
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) std::printf("%s%d", i ? "," : "", tokens[i]);
  std::printf("\n");
}

// Those of initial values.
std::vector<double> zero_biases(const ModelSpec& spec) {
  if (!spec.options.router_bias) return {};
  return std::vector<double>(static_cast<std::size_t>((spec.L() + spec.options.mtp_depth) * spec.E()), 0.0);
}

}  // namespace

void run_generate(const CommandLine& line, const World& world) {
  if (world.size() > 1) throw BadInput("forge generate runs as one rank");
  const Deck deck = load_deck(line, Needs::model_only, 1);
  if (!deck.checkpoint.model_from.empty())
    throw BadInput(
        "forge generate reads no checkpoint.model_from; legal: forge export it, and give model.hf with "
        "load_weights: true");
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) {
    const ModelSpec spec = resolve_model(deck.model);
    const auto prompt = prompt_of(line, spec);
    const auto capacity = static_cast<std::int64_t>(prompt.size()) + line.length;
    if (spec.options.max_positions > 0 && capacity > spec.options.max_positions)
      throw BadInput("prompt and --length need " + std::to_string(capacity) + " positions, the model has " +
                     std::to_string(spec.options.max_positions));
    Stream stream(threads_of(deck, world));
    const auto units = whole_units(spec);
    const Precision precision = precision_of(deck);
    const StorageKind weights_only{false, false};
    std::size_t bytes = 0;
    for (const LocalUnit& unit : units)
      for (const UnitBufferSpec& buffer : unit_buffers(unit, precision, {}, weights_only))
        bytes += align_up(buffer.bytes());
    Arena arena(bytes);
    ParameterStorage<T> storage(arena, stream, units, precision, {}, weights_only);
    load_parameters(deck, storage, stream);
    std::vector<const T*> weights;
    for (std::size_t u = 0; u < storage.size(); ++u) weights.push_back(storage.unit(u).whole.data);
    Decoder<T> decoder(stream, spec, precision, units, weights, capacity,
                       deck.model.load_weights ? load_router_biases(deck.model.hf, spec) : zero_biases(spec));
    print_tokens(line, continue_tokens(decoder, prompt, line.length,
                                       {line.temperature, line.top_k, line.top_p, line.sampling_seed}));
  });
}

}  // namespace forge
