#include <algorithm>

#include "config/check_parts.hpp"
#include "config/family.hpp"
#include "config/keys.hpp"
#include "config/optimizer_table.hpp"

namespace forge {

namespace {

std::string words_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " | ") + word;
  return text;
}

// Refuses a key beside adapters or frozen units, with its value and the legal ones.
class Refusals {
 public:
  Refusals(const Deck& deck, Report& report, std::string begin, std::string instead)
      : deck_(deck), report_(report), begin_(std::move(begin)), instead_(std::move(instead)) {}

  void operator()(bool wrong, const char* section, const char* name, const std::string& legal) const {
    if (!wrong) return;
    const Key& key = *find_key(section, name);
    report_.add(begin_ + " with " + key.qualified() + " = " + value_text(key, deck_) +
                ", which forge doesn't do together; legal: " + legal + ", or " + instead_);
  }

 private:
  const Deck& deck_;
  Report& report_;
  std::string begin_, instead_;
};

// What isn't computed with frozen units, whoever freezes them.
void check_with(const Refusals& refuse, const Deck& deck) {
  const OptimizerRow& optimizer = row_of(deck.optimizer.name);
  refuse(deck.model.mtp_depth > 0, "model", "mtp_depth", "0");
  refuse(optimizer.factored(), "optimizer", "name", "another optimizer");
  refuse(deck.optimizer.qk_clip > 0, "optimizer", "qk_clip", "0");
  refuse(!deck.checkpoint.optimizer_from.empty(), "checkpoint", "optimizer_from", "no optimizer_from");
}

// Matrices of feed-forward layers; some families name those of experts otherwise.
void add_mlp_targets(const ModelDeck& model, std::vector<std::string>& names) {
  const TensorNames& of = tensor_names(model.family);
  const bool gated = is_gated(model.activation);
  if (of.packed) return;  // and no layer without experts
  if (gated && *of.gate_up != 0) {
    names.insert(names.end(), {"gate_up_proj", "down_proj"});
    return;
  }
  const std::vector<std::string> plain{"gate_proj", "up_proj", "down_proj"}, experts{of.gate, of.up, of.down};
  const bool dense = model.first_dense_layers > 0 || model.moe_every > 1 || !model.dense_layers.empty();
  const bool all_routed = model.experts > 0 && model.shared_expert_ffn == 0 && !dense;
  if (all_routed && !of.adapted_experts) return;
  if (!all_routed || plain == experts) names.insert(names.end(), plain.begin() + (gated ? 0 : 1), plain.end());
  if (model.experts > 0 && plain != experts) names.insert(names.end(), experts.begin(), experts.end());
}

// Whether matrices of experts are among the targets.
bool adapts_experts(const ModelDeck& model) {
  const TensorNames& of = tensor_names(model.family);
  const std::vector<std::string>& targets = model.adapter.targets;
  if (model.experts == 0 || !of.adapted_experts) return false;
  return targets.empty() || std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
           return target == of.gate || target == of.up || target == of.down;
         });
}

bool takes_all_targets(const ModelDeck& model) {
  return model.experts == 0 || tensor_names(model.family).adapted_experts;
}

void check_targets(const Deck& deck, Report& report) {
  const std::vector<std::string> legal = adapter_targets(deck.model);
  if (deck.model.adapter.targets.empty() && !takes_all_targets(deck.model))
    report.add("adapter.targets = [] with model.family = " + std::string(name_of(deck.model.family)) +
               ", whose experts take no adapters; legal: some of " + words_of(legal));
  const std::vector<std::string>& targets = deck.model.adapter.targets;
  for (auto target = targets.begin(); target != targets.end(); ++target)
    if (std::find(targets.begin(), target, *target) != target)
      report.add("adapter.targets has " + *target + " twice; legal: each name once");
  for (const std::string& target : targets)
    if (std::find(legal.begin(), legal.end(), target) == legal.end())
      report.add("adapter.targets has " + target +
                 ", which is no matrix of attention and MLP of model.family = " + name_of(deck.model.family) +
                 "; legal: " + words_of(legal) + (takes_all_targets(deck.model) ? ", or [] for all of them" : ""));
}

}  // namespace

std::vector<std::string> adapter_targets(const ModelDeck& model) {
  if (tensor_names(model.family).gpt2) return {"c_attn", "c_proj", "c_fc"};
  std::vector<std::string> names{"q_proj", "k_proj", "v_proj"};
  if (model.attention == AttentionKind::mla && model.q_lora > 0)
    names = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"};
  else if (model.attention == AttentionKind::mla)
    names = {"q_proj", "kv_a_proj_with_mqa", "kv_b_proj"};
  else if (*tensor_names(model.family).qkv != 0)
    names = {"qkv_proj"};
  names.push_back("o_proj");
  const bool groups = tensor_names(model.family).linear_groups;
  if (model.full_attention_interval > 0)
    for (const char* name : groups ? std::vector{"in_proj_qkvz", "in_proj_ba", "out_proj"}
                                   : std::vector{"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"})
      names.push_back(name);
  add_mlp_targets(model, names);
  return names;
}

std::string peft_obstacle(const ModelDeck& model) {
  const TensorNames& of = tensor_names(model.family);
  const std::vector<std::string>& targets = model.adapter.targets;
  const auto has = [&](const char* name) { return std::find(targets.begin(), targets.end(), name) != targets.end(); };
  if (!adapts_experts(model) || !is_gated(model.activation) || targets.empty() || has(of.gate) == has(of.up)) return "";
  const bool gate = has(of.gate);
  return std::string("adapter.targets has ") + (gate ? of.gate : of.up) + " of experts without " +
         (gate ? of.up : of.gate) + ": PEFT reads both or neither";
}

void check_frozen(const Deck& deck, Report& report) {
  if (deck.train.frozen.empty()) return;
  const std::string begin = "train.frozen = " + value_text(*find_key("train", "frozen"), deck);
  check_with({deck, report, begin, "frozen: []"}, deck);
}

void check_adapter(const Deck& deck, bool trains, Report& report) {
  const AdapterDeck& adapter = deck.model.adapter;
  if (!adapter.on()) {
    for (const Key& key : all_keys())
      if (key.section == "adapter" && !is_default(key, deck))
        report.add(key.qualified() + " = " + value_text(key, deck) +
                   " without adapter.name = lora; legal: " + default_text(key) + ", or name: lora");
    return;
  }
  const Refusals refuse(deck, report, "adapter.name = lora", "adapter.name: none");
  refuse(adapter.dropout > 0 && adapts_experts(deck.model), "adapter", "dropout",
         "0, or adapter.targets without matrices of experts");
  refuse(deck.model.new_rows != NewRows::none, "model", "new_rows",
         "none (a run without adapters writes the model with those rows)");
  check_targets(deck, report);
  refuse(deck.model.router_bias_rate > 0, "model", "router_bias_rate", "0: routers are frozen, too");
  if (!trains) return;
  check_with(refuse, deck);
  // The gradients of A and B are of low rank: rounding alone would choose the rest of a basis.
  refuse(row_of(deck.optimizer.name).rotates(), "optimizer", "name",
         "adamw | lion | sgd | schedule_free | muon | normuon");
  refuse(!deck.train.frozen.empty(), "train", "frozen", "[]: the model beside adapters is frozen in any case");
  refuse(!deck.checkpoint.model_from.empty(), "checkpoint", "model_from",
         "model.hf with load_weights (`forge export` writes a checkpoint as such a directory)");
  refuse(deck.output.save_hf, "output", "save_hf", "false (`forge export` writes adapters, or the merged model)");
}

}  // namespace forge
