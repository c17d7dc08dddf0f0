#include <algorithm>
#include <array>
#include <filesystem>

#include "app/verb_help.hpp"
#include "config/suggest.hpp"
#include "config/text.hpp"
#include "core/parse.hpp"

namespace forge {

namespace {

// What other programs call something, and what forge has for it; names without "_" and "-".
struct Meaning {
  const char* names;
  const char* text;
};

constexpr std::array verb_meanings = {
    Meaning{"eval evaluation val test perplexity ppl", "evaluate"},
    Meaning{"loglikelihood logprobs lmeval", "score"},
    Meaning{"validate", "evaluate, or show, which checks a deck"},
    Meaning{"sample infer inference predict complete completion chat serve run gen", "generate"},
    Meaning{"resume continue restart", "train, with --restart"},
    Meaning{"fit finetune pretrain pretraining launch start sft", "train"},
    Meaning{"convert save tohf hf", "export"},
    Meaning{"info inspect summary memory describe print config", "show"},
    Meaning{"estimate predicttime search autotune optimise optimize simulate", "plan"},
    Meaning{"bench benchmark measure", "calibrate"},
    Meaning{"preprocess prepare encode tokenise tok traintokenizer bpe", "tokenize"},
    Meaning{"plot draw chart charts dashboard tensorboard html reports", "report"},
    Meaning{"doctor diagnose healthcheck preflight burnin", "check"},
    Meaning{"fsck verifycheckpoints checkpoint", "verify-checkpoint"},
    Meaning{"import importhf fromhf load",
            "train, which reads the Hugging Face directory that model.hf of the deck names"},
    Meaning{"selftest tests", "verify"},
    Meaning{"usage man keys options", "help"},
};

constexpr std::array option_meanings = {
    Meaning{"resume continue resumefrom resumefromcheckpoint autoresume load restartfrom",
            "--restart (alone: from the newest checkpoint)"},
    Meaning{"config configfile configpath cfg c f deck input jobconfigfile yaml", "the deck's path, without an option"},
    Meaning{"n np nproc nprocs nprocpernode numprocesses worldsize ngpus gpus numgpus",
            "a launcher (mpirun -n N forge …), or --ranks N with ranks as threads"},
    Meaning{"maxnewtokens maxtokens maxlength numtokens npredict", "--length N of forge generate"},
    Meaning{"temp", "--temperature X of forge generate"},
    Meaning{"dryrun noop check", "forge show DECK, which starts nothing"},
    Meaning{"ckpt checkpointpath checkpointdir", "--checkpoint DIR of evaluate, score and generate"},
    Meaning{"force overwrite", "--fresh: earlier checkpoints are moved aside"},
    Meaning{"verbose quiet debug loglevel", "output.every_steps of the deck: steps between lines of the log"},
    Meaning{"device cpu cuda", "a build for each: build/cpu/forge computes on CPUs, build/cuda/forge on GPUs"},
};

// What a verb has for an option of another one, or of other programs.
struct OfOtherVerb {
  Verb verb;
  const char* names;
  const char* own;
};

constexpr std::array other_options = {
    OfOtherVerb{Verb::plan, "gpu", "--machine, which takes a GPU's name, too"},
    OfOtherVerb{Verb::plan, "cost", "--machine"},
    OfOtherVerb{Verb::show, "machine", "--gpu: whether it fits; or --cost: FLOP, bytes and their floor"},
    OfOtherVerb{Verb::train, "checkpoint", "--restart"},
    OfOtherVerb{Verb::train, "output o out outdir name runname", "--set output.directory=DIR"},
    OfOtherVerb{Verb::train, "data dataset traindata", "--set 'data.files=[FILE]'"},
    OfOtherVerb{Verb::train, "model modelpath m", "--set model.hf=DIR"},
    OfOtherVerb{Verb::evaluate, "restart", "--checkpoint"},
    OfOtherVerb{Verb::evaluate, "data dataset file", "--set 'data.validation_files=[FILE]'"},
    OfOtherVerb{Verb::evaluate, "model modelpath m", "the model's directory in the deck's place"},
    OfOtherVerb{Verb::evaluate, "tasks task benchmark",
                "no benchmarks: verify/lm_eval_forge.py gives forge's scores to lm-eval"},
    OfOtherVerb{Verb::score, "restart", "--checkpoint"},
    OfOtherVerb{Verb::score, "out o outputfile", "--output FILE"},
    OfOtherVerb{Verb::score, "model modelpath m", "the model's directory in the deck's place"},
    OfOtherVerb{Verb::generate, "restart", "--checkpoint"},
    OfOtherVerb{Verb::generate, "model modelpath m", "the model's directory in the deck's place"},
    OfOtherVerb{Verb::generate, "promptfile file f input",
                "--prompts FILE of lines of JSON, or --prompt \"$(cat FILE)\""},
    OfOtherVerb{Verb::generate, "numsamples numreturnsequences samples n count",
                "a line of --prompts FILE for each, or other ones with --seed N"},
    OfOtherVerb{Verb::generate, "dosample greedy", "--temperature X, 0 for the most likely token alone"},
    OfOtherVerb{Verb::generate, "numbeams beams beamsize repetitionpenalty minp typicalp",
                "--temperature, --top-k and --top-p"},
    OfOtherVerb{Verb::tokenize, "input i file files text data", "the texts themselves, without an option"},
    OfOtherVerb{Verb::tokenize, "outputprefix out o outputfile", "--output FILE"},
    OfOtherVerb{Verb::tokenize, "appendeod eod eos addeos appendeos", "--document-end"},
    OfOtherVerb{Verb::tokenize, "prependbos bos addbos", "--document-begin"},
    OfOtherVerb{Verb::tokenize, "jsonkeys jsonkey key textkey column", "--field NAME"},
    OfOtherVerb{Verb::tokenize, "vocabsize vocab vocabulary", "--train-bpe IDS"},
    OfOtherVerb{Verb::tokenize, "workers numworkers numproc nproc n j jobs", "--threads N"},
    OfOtherVerb{Verb::export_model, "checkpoint ckpt model input", "the checkpoint's directory, without an option"},
    OfOtherVerb{Verb::export_model, "dtype precision torchdtype", "--type fp32|bf16|fp8"},
    OfOtherVerb{Verb::export_model, "out o outdir outputdir", "--output HF_DIR"},
    OfOtherVerb{Verb::gradients, "out o outputfile", "--output FILE"},
};

template <std::size_t N>
const char* meaning_of(const std::array<Meaning, N>& meanings, const std::string& name) {
  for (const Meaning& meaning : meanings)
    if (has_word(meaning.names, name)) return meaning.text;
  return nullptr;
}

// "--restart latest|DIR" without its value.
std::string name_of(const OptionText& option) {
  return option.form.substr(0, option.form.find(' '));
}

// Of the options of one verb the nearest that has at most so many other letters.
std::string own_option(Verb verb, const std::string& name, std::size_t most) {
  std::string best;
  std::size_t least = ~std::size_t{0};
  for (const OptionText& option : option_texts(verb)) {
    const std::string own = letters_of(name_of(option));
    const std::size_t distance = edit_distance(own, name);
    if (distance > 1 && own[0] != name[0]) continue;  // another word
    if (distance <= most && distance < least) least = distance, best = name_of(option);
  }
  return best;
}

std::string verbs_with(const std::string& name) {
  std::vector<std::string> found;
  for (const auto& [verb, entry] : verbs())
    for (const OptionText& option : option_texts(entry.verb))
      if (letters_of(name_of(option)) == name) found.push_back(verb);
  return joined(found);
}

bool takes_settings(Verb verb) {
  const std::vector<OptionText> options = option_texts(verb);
  return std::any_of(options.begin(), options.end(), [](const OptionText& o) { return name_of(o) == "--set"; });
}

}  // namespace

std::string unknown_verb_text(const std::string& word) {
  const std::string neither = shown(word) + " is neither a verb nor a deck";
  if (std::filesystem::is_directory(word))
    return neither +
           ", but a directory; legal: a deck, a YAML file, which training takes; evaluate, generate, show and "
           "plan take a run's, a checkpoint's or a Hugging Face directory, as in forge generate " +
           word;
  std::vector<std::string> names;
  const std::string letters = letters_of(word);
  std::string near;
  for (const char* ending : {".yaml", ".yml"})
    if (std::filesystem::exists(word + ending)) near = word + ending;
  for (const auto& [name, entry] : verbs()) {
    names.push_back(name);
    if (near.empty() && edit_distance(name, letters) <= far_enough(letters)) near = name;
  }
  if (const char* meaning = meaning_of(verb_meanings, letters)) near = meaning;
  return neither + (near.empty() ? "" : "; did you mean " + near + "?") + "; verbs: " + joined(names);
}

std::string option_list(const std::string& verb) {
  std::vector<std::string> names;
  for (const OptionText& option : option_texts(verbs().at(verb).verb)) names.push_back(name_of(option));
  return names.empty() ? "; legal: none" : "; legal: " + joined(names) + " (`forge " + verb + " --help`)";
}

std::string option_hint(const std::string& verb, const std::string& option) {
  const std::string text = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  const std::string name = text.substr(0, text.find('=')), letters = letters_of(name);
  const Verb of = verbs().at(verb).verb;
  const bool settings = takes_settings(of);
  const auto to_set = [&](Naming naming) {
    const std::string key = settings ? key_named(name, naming) : "";
    return key.empty() ? "" : "; legal: --set " + key + "=VALUE";
  };
  if (const std::string own = own_option(of, letters, 0); !own.empty()) return "; did you mean " + own + "?";
  for (const OfOtherVerb& other : other_options)
    if (other.verb == of && has_word(other.names, letters)) return std::string("; forge ") + verb + " has " + other.own;
  if (settings && has_word("s override overrides opt opts define d setting", letters))
    return "; did you mean --set KEY=VALUE?";
  if (const char* meaning = meaning_of(option_meanings, letters)) return std::string("; forge has ") + meaning;
  if (const std::string key = to_set(Naming::spelling); !key.empty()) return key;
  if (const std::string own = own_option(of, letters, far_enough(letters)); !own.empty())
    return "; did you mean " + own + "?";
  if (const std::string key = to_set(Naming::meaning); !key.empty()) return key;
  if (const std::string others = verbs_with(letters); !others.empty())
    return "; it belongs to " + others + option_list(verb);
  const std::size_t dot = name.find('.');
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
  const Suggestion key = suggest_key(section, dot == std::string::npos ? name : name.substr(dot + 1));
  if (!settings || key.text.empty()) return "";
  return key.key.empty() ? "; " + key.text : "; legal: --set " + key.key + "=VALUE";
}

std::string option_of_verbs(const std::string& word) {
  const std::string others = verbs_with(letters_of(word));
  return others.empty() ? "" : "; it is an option of " + others;
}

std::string word_hint(const std::string& verb, const std::vector<std::string>& words,
                      const std::vector<std::string>& settings) {
  const auto value = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word.find('.') == std::string::npos || word[0] < 'A';  // no deck's name
  });
  for (const std::string& setting : settings)
    if (setting.find('=') == std::string::npos && words.size() > 1 && value != words.end())
      return "; a key and its value are one word: --set " + setting + "=" + *value;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (const std::size_t equals = word.find('='); equals != std::string::npos && words.size() > 1) {
      const std::string key = key_named(word.substr(0, equals));
      return "; assignments stand behind --set: --set " + (key.empty() ? word : key + word.substr(equals));
    }
    if (words.size() > 1 && i == 0 && verb == "train" && verbs().contains(word))
      return "; a verb stands in front of all options: forge " + word + " …";
  }
  return verb == "generate" && words.size() > 1 ? "; a text stands in quotes behind --prompt: --prompt 'Once upon'"
                                                : "";
}

}  // namespace forge
