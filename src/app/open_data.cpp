#include "app/open_data.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "tokenizer/files.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {

TrainingData open_data(const RunSetup& setup, const World& world) {
  if (setup.deck.data.packing == Packing::cut) return TrainingData(setup);
  world.watchdog().start_other(0, "packing");
  Heartbeat* const heartbeat = &world.watchdog().heartbeat();
  if (world.size() > 1) {
    if (world.rank() == 0) TrainingData{setup, heartbeat};
    world.make_world()->barrier();
  }
  return TrainingData(setup, heartbeat);
}

namespace {

// "": it goes with the model, or there is none that can be read.
std::string vocabulary_warning(const ModelDeck& model) {
  std::int64_t ids = 0;
  std::string name;
  try {
    const std::string path = !model.tokenizer.empty() ? model.tokenizer : has_tokenizer(model.hf) ? model.hf : "";
    if (path.empty()) return "";
    const Tokenizer tokenizer = Tokenizer::open(path);
    ids = tokenizer.vocabulary();
    name = tokenizer.name();
  } catch (const BadInput&) {
    return "";  // told by who needs it
  }
  // Vocabularies are padded to a multiple of some number.
  const std::int64_t padding = std::max<std::int64_t>(128, model.vocabulary / 64);
  if (ids <= model.vocabulary && model.vocabulary - ids <= padding) return "";
  return "model.vocabulary = " + std::to_string(model.vocabulary) + ", and the tokenizer " + name + " has " +
         std::to_string(ids) + " ids: " +
         (ids > model.vocabulary ? "those from model.vocabulary on can't be given to the model"
                                 : "no text has the others, whose rows of the embedding are never trained") +
         "; better: model.vocabulary = " + std::to_string(ids);
}

}  // namespace

std::vector<std::string> data_warnings(const Deck& deck) {
  constexpr std::int64_t ids_of_uint16 = 65536;
  std::vector<std::string> warnings;
  if (deck.data.dtype == TokenType::uint16 && deck.model.vocabulary > ids_of_uint16)
    warnings.push_back(
        "data.dtype = uint16, and model.vocabulary = " + std::to_string(deck.model.vocabulary) +
        ": ids above 65535 can't be in such files, and files of uint32 that are read so have a token 0 " +
        "behind each other one; better: uint32, where the files were written so");
  if (std::string text = vocabulary_warning(deck.model); !text.empty()) warnings.push_back(std::move(text));
  return warnings;
}

}  // namespace forge
