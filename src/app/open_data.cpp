#include "app/open_data.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <system_error>

#include "app/common_facts.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "tokenizer/files.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {

namespace {

std::int64_t files_of(const std::vector<std::string>& files, const std::vector<std::string>& masks) {
  std::int64_t count = static_cast<std::int64_t>(files.size() + masks.size());
  std::error_code ignored;
  for (const std::string& file : files) {  // with an index of documents
    std::filesystem::path megatron = file;
    count += std::filesystem::exists(megatron.replace_extension(".idx"), ignored) ||
             std::filesystem::exists(file + ".index", ignored);
  }
  return count;
}

std::int64_t open_now() {
  std::int64_t count = 0;
  std::error_code error;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd", error)) ++count;
  return count;
}

// Every rank of a process has its own files open. The soft limit is the hard one since the start.
void refuse_too_many_files(const RunSetup& setup, const World& world) {
  constexpr std::int64_t besides = 32;  // outputs, checkpoints, what MPI opens later
  const DataDeck& data = setup.deck.data;
  std::int64_t files = files_of(data.files, data.mask_files);
  for (const ValidationDeck& set : data.held_out()) files += files_of(set.files, set.mask_files);
  for (const SourceDeck& source : data.sources) files += files_of(source.files, source.mask_files);
  const std::int64_t ranks = world.node_name(0).empty() ? world.size() : 1;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const std::int64_t needed = files * ranks + besides + (ranks == 1 ? open_now() : 0);
  if (needed <= static_cast<std::int64_t>(limit.rlim_cur)) return;
  throw BadInput("data.files: " + counted(files, "file") + " of " + std::to_string(ranks) +
                 (ranks == 1 ? " rank need " : " ranks of a process need ") + std::to_string(needed) +
                 " open files, but ulimit -n is " + std::to_string(limit.rlim_cur) + " (its hard limit " +
                 std::to_string(limit.rlim_max) + "); legal: fewer, longer files, or ulimit -n " +
                 std::to_string(needed) + " or more" + (ranks > 1 ? ", or ranks that are processes (mpirun)" : ""));
}

}  // namespace

namespace {

TrainingData opened(const RunSetup& setup, const World& world) {
  if (setup.deck.data.packing == Packing::cut) return TrainingData(setup);
  world.watchdog().start_other(0, "packing");
  Heartbeat* const heartbeat = &world.watchdog().heartbeat();
  if (world.size() > 1) {
    if (world.rank() == 0) TrainingData{setup, heartbeat};
    world.make_world()->barrier();
  }
  return TrainingData(setup, heartbeat);
}

}  // namespace

TrainingData open_data(const RunSetup& setup, const World& world) {
  refuse_too_many_files(setup, world);
  TrainingData data = opened(setup, world);
  agree_on_data(data, setup, world);
  return data;
}

namespace {

// "": it goes with the model, or there is none. Before a training, also: it can't be read.
std::string vocabulary_warning(const ModelDeck& model, bool trains) {
  std::int64_t ids = 0;
  std::string name;
  try {
    const std::string path = !model.tokenizer.empty() ? model.tokenizer : has_tokenizer(model.hf) ? model.hf : "";
    if (path.empty()) return "";
    const Tokenizer tokenizer = Tokenizer::open(path);
    ids = tokenizer.vocabulary();
    name = tokenizer.name();
  } catch (const BadInput& error) {  // told again by who needs it
    return trains && !model.tokenizer.empty()
               ? std::string("model.tokenizer: ") + error.what() + "; exports of the run will have no tokenizer"
               : "";
  }
  // Vocabularies are padded to a multiple of some number.
  const std::int64_t padding = std::max<std::int64_t>(128, model.vocabulary / 64);
  if (ids <= model.vocabulary && model.vocabulary - ids <= padding) return "";
  return "model.vocabulary = " + std::to_string(model.vocabulary) + ", and the tokenizer " + name + " has " +
         std::to_string(ids) + " ids: " +
         (ids > model.vocabulary ? "those from model.vocabulary on can't be given to the model"
                                 : "no text has the others, whose rows of the embedding are never trained") +
         "; better: " +
         (!model.hf.empty() && (ids < model.vocabulary || !model.load_weights)
              ? std::string("a tokenizer with as many")
              : "model.vocabulary = " + std::to_string(ids) +
                    (ids > model.vocabulary && model.load_weights ? " with model.new_rows: mean | noise" : ""));
}

// Files that a run trains on twice as often, or is to be validated on too.
void warn_of_files(const DataDeck& data, std::vector<std::string>& warnings) {
  std::set<std::filesystem::path> trained;
  const auto place = [](const std::string& file) { return std::filesystem::path(file).lexically_normal(); };
  std::string twice, both;
  const auto add = [&](const std::vector<std::string>& files) {
    for (const std::string& file : files)
      if (!trained.insert(place(file)).second) twice = file;
  };
  add(data.files);
  for (const SourceDeck& source : data.sources) add(source.files);
  for (const std::string& file : data.validation_files)
    if (trained.contains(place(file))) both = file;
  if (!twice.empty())
    warnings.push_back("the training data have " + twice +
                       " twice, whose samples come twice as often; better: once, or weights of data.sources");
  if (!both.empty())
    warnings.push_back("data.validation_files has " + both +
                       ", which is trained on, too: the loss on it says nothing of other text; better: held-out files");
}

}  // namespace

std::vector<std::string> data_warnings(const Deck& deck, bool trains) {
  constexpr std::int64_t ids_of_uint16 = 65536;
  std::vector<std::string> warnings;
  if (deck.data.dtype == TokenType::uint16 && deck.model.vocabulary > ids_of_uint16)
    warnings.push_back(
        "data.dtype = uint16, and model.vocabulary = " + std::to_string(deck.model.vocabulary) +
        ": ids above 65535 can't be in such files, and files of uint32 that are read so have a token 0 " +
        "behind each other one; better: uint32, where the files were written so");
  if (std::string text = vocabulary_warning(deck.model, trains); !text.empty()) warnings.push_back(std::move(text));
  if (deck.train.validate_every_steps == 0 && !deck.data.held_out().empty())
    warnings.push_back(
        "train.validate_every_steps = 0: a training never reads its held-out data, which forge evaluate does; better: "
        "the number of steps between two validations");
  warn_of_files(deck.data, warnings);
  return warnings;
}

}  // namespace forge
