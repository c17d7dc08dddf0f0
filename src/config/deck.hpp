#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/adapter_deck.hpp"
#include "config/recompute_policy.hpp"

namespace forge {

// The input deck as values. The table in config/keys.cpp gives every field its key, unit, default, range and doc line;
// the defaults below are the table's (a test compares them).

enum class Family : int;  // config/family.hpp
enum class NormKind { rmsnorm, layernorm };
enum class NormPlacement { before, behind, both };
enum class Activation { swiglu, geglu, clamped_swiglu, gelu, gelu_tanh, relu2 };
constexpr bool is_gated(Activation a) {
  return a == Activation::swiglu || a == Activation::geglu || a == Activation::clamped_swiglu;
}
enum class PositionKind { rope, learned };
enum class RopeScaling { none, linear, llama3, yarn, longrope };
enum class AttentionKind { standard, mla };
enum class NewRows { none, mean, noise };
enum class ScoreKind : int;       // config/router_score.hpp
enum class GroupScoreKind : int;  // config/router_score.hpp
enum class AuxiliaryScope { sequence, microbatch };
enum class CapacityDrop { position, probability };
enum class DispatchMethod { automatic, all_to_all, two_level, all_gather };  // config/dispatch_words.hpp
enum class PrecisionName { fp64, fp32, bf16, fp8 };
enum class Fp8Recipe : int;  // config/fp8_recipe.hpp
enum class Fp8Scale { power_of_two, exact };
enum class Fp8Carrier { bf16, fp64 };              // type of all that isn't quantised
enum class SpikeAction { none, log, skip, back };  // a line, no update, the newest checkpoint without the step's data
enum class ReplicaAction { stop, repair };
enum class Accumulation { automatic, sharded, unsharded };       // automatic: sharded with zero_stage >= 2
enum class ReductionLevels { one_level, two_level, automatic };  // layout/shard_nodes.hpp
enum class GatherPolicy { microbatch, step };                    // how long ZeRO-3 keeps gathered parameters
enum class Overlap { none, pairs };  // pairs: two passes at once, each behind the other's sends
enum class CpMethod { ring, all_gather, all_to_all, two_level };  // how context-parallel ranks see each other's keys
enum class OptimizerName : int;                                   // config/optimizer_table.hpp
enum class ScheduleName : int;                                    // config/schedule_name.hpp
ScheduleName default_schedule();                                  // default_schedule_name there
enum class RateSchedule { constant, linear, cosine, wsd, inverse_sqrt, rex, cosine_restarts, piecewise };
enum class WsdTail { linear, cosine, sqrt };
enum class TokenType { none, uint16, uint32 };  // none: not declared; .npy files declare their own
enum class SampleOrder { sequential, shuffled };
enum class DocumentEnds { token, index };        // where documents end: at an id, or where the files' indexes say
enum class Packing { cut, best_fit, pairs };     // how documents become samples; pairs: two in each
enum class PositionOrigin { sample, document };  // where positions start from 0
enum class AtEnd { repeat, error };              // of a source whose samples are used up
enum class Resume { never, automatic };
enum class MuonScale { moonlight, keller };
enum class StateType { compute_default, bf16 };  // compute_default: fp32, or fp64 under precision fp64

inline constexpr std::size_t most_mtp_depths = 64;
inline constexpr std::size_t most_sources = 256;  // of a mixture

// Dimensions and options of a decoder-only transformer. From the deck itself or from config.json (model.hf).
struct ModelDeck {
  std::string hf;  // Hugging Face directory; "" = dimensions from the deck
  bool load_weights = false;
  std::string tokenizer;  // directory or file; "" = that of hf, if it has one
  Family family{};
  std::int64_t layers = 0;           // L
  std::int64_t width = 0;            // C
  std::int64_t heads = 0;            // H
  std::int64_t kv_heads = 0;         // K; 0 = H
  std::int64_t head_dim = 0;         // D; 0 = C / H
  std::int64_t ffn = 0;              // F
  std::int64_t vocabulary = 0;       // V
  NewRows new_rows = NewRows::none;  // of embedding and head, where V is larger than config.json's
  std::int64_t base_vocabulary = 0;  // config.json's then; 0: no rows are new
  NormKind norm = NormKind::rmsnorm;
  NormPlacement norm_placement = NormPlacement::before;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::swiglu;
  double activation_limit = 7, activation_alpha = 1.702;  // of clamped_swiglu: Gate of kernels/kernels.hpp
  PositionKind positions = PositionKind::rope;
  std::int64_t max_positions = 0;  // rows of the learned table; with rope, the limit of generate, 0 = none
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;
  std::int64_t rope_original_positions = 0;
  double rope_low_frequency_factor = 1;
  double rope_high_frequency_factor = 4;
  double rope_beta_fast = 32;
  double rope_beta_slow = 1;
  double rope_attention_factor = 0;  // 0 = the method's own value
  double rope_mscale = 0;            // yarn, as DeepSeek's config.json has it; 0 = absent
  double rope_mscale_all_dim = 0;
  // longrope: divisors of the frequencies, (rotated entries / 2); long ones where T > rope_original_positions.
  std::vector<double> rope_short_factor, rope_long_factor;
  bool rope_truncate = true;        // yarn: round the correction range to whole dimensions
  double rope_fraction = 1;         // of a head's entries, so many first ones
  std::int64_t no_rope_every = 0;   // layers without positions; 0 = none
  double rope_window_theta = 0;     // of layers with a window, without scaling; 0 = as the others
  double query_position_scale = 0;  // β of 1 + β ln(1 + ⌊position / rope_original_positions⌋)
  bool qk_norm = false;
  bool qk_norm_whole = false;        // over all heads together
  double query_pre_attn_scalar = 0;  // scores are divided by its square root; 0 = D
  double attention_soft_cap = 0;     // of scaled scores; 0 = none
  bool attention_sinks = false;      // a learned logit of each head in its softmax's sum, without a value
  double logit_soft_cap = 0;         // of the head's logits; 0 = none
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  std::int64_t sliding_window = 0;             // 0 = full causal attention
  std::int64_t sliding_window_layer = 0;       // first layer that uses the window
  std::int64_t sliding_window_full_every = 0;  // layers without it among them; 0 = none
  double embedding_scale = 1;                  // of the token table's rows in the residual stream
  bool tied_embeddings = false;
  double dropout = 0;
  double initial_std = 0.02;
  bool residual_scaling = true;  // output projections start at initial_std / sqrt(2 L)

  AttentionKind attention = AttentionKind::standard;
  std::int64_t q_lora = 0;     // 0 = queries without a down-projection
  std::int64_t kv_lora = 0;    // width of the latent that keys and values come from
  std::int64_t nope_dim = 0;   // of a head: query and key entries that rope doesn't rotate
  std::int64_t rope_dim = 0;   // of a head: those that it rotates; the key's are shared by all heads
  std::int64_t value_dim = 0;  // width of a head's values; 0 = nope_dim
  bool rope_interleave = false;
  double latent_norm_epsilon = 1e-6;

  bool attention_output_gate = false;  // sigmoids of a part of the queries' projection
  std::int64_t full_attention_interval =
      0;  // layers with attention; the others have gated DeltaNet; 0 = all have attention
  std::int64_t linear_key_heads = 0;
  std::int64_t linear_value_heads = 0;
  std::int64_t linear_key_dim = 0;    // of a head
  std::int64_t linear_value_dim = 0;  // likewise
  std::int64_t linear_conv_taps = 4;  // taps of the convolution

  std::int64_t experts = 0;            // E; 0 = dense
  std::int64_t experts_per_token = 0;  // k
  std::int64_t expert_ffn = 0;         // 0 = ffn
  std::int64_t shared_expert_ffn = 0;  // of all shared experts together; 0 = none
  bool shared_expert_gate = false;
  bool expert_bias = false;  // of the routed experts' matrices
  std::int64_t first_dense_layers = 0;
  std::int64_t moe_every = 1;
  std::vector<std::int64_t> dense_layers;
  ScoreKind router_score{};
  bool router_renormalise = true;
  double router_scale = 1;
  std::int64_t router_groups = 1;
  std::int64_t router_groups_used = 0;  // 0 = all
  GroupScoreKind router_group_score{};
  bool router_logit_bias = false;
  bool router_bias = false;
  double router_bias_rate = 0;
  double auxiliary_loss_coefficient = 0;
  AuxiliaryScope auxiliary_loss_scope = AuxiliaryScope::sequence;
  double router_z_coefficient = 0;
  double router_jitter = 0;
  bool forced_balance = false;
  double capacity_factor = 0;  // 0 = dropless
  CapacityDrop capacity_drop = CapacityDrop::position;
  DispatchMethod dispatch = DispatchMethod::all_to_all;
  double dispatch_rows = 1.5;  // rows of a round, times the balanced count

  std::int64_t mtp_depth = 0;  // at most most_mtp_depths
  double mtp_loss_factor = 0.1;

  AdapterDeck adapter;  // a section of its own

  std::vector<std::string> given;  // names of this section's keys that the deck itself has; no key of its own
};

struct MeshDeck {
  std::int64_t pp = 1, dp_replicate = 1, dp_shard = -1, cp = 1, tp = 1, ep = 1, etp = 0;  // etp 0 = tp
  CpMethod cp_method = CpMethod::ring;
  std::int64_t cp_inner = 0;  // of two_level; 0: config/head_ranks.hpp chooses
  int node_ranks = 0;         // no key: consecutive ranks of each node; 0: not known, or not the same number everywhere
};

struct ScheduleDeck {
  ScheduleName name = default_schedule();
  std::int64_t virtual_stages = 1;  // model chunks per rank
  std::string split = "even";
  std::string file;  // a schedule as CSV; "" = made by `name`
};

// Another batch from a step on.
struct RampDeck {
  std::int64_t from_step = 0;    // 0 = from_tokens
  std::int64_t from_tokens = 0;  // the first step behind so many tokens of training
  std::int64_t global_batch_sequences = 0;
  bool operator==(const RampDeck&) const = default;
};

struct TrainDeck {
  std::int64_t steps = 0;
  std::int64_t global_batch_sequences = 0;
  std::vector<RampDeck> batch_ramp;  // config/batch_ramp.hpp
  std::int64_t microbatch_sequences = 1;
  std::int64_t sequence_tokens = 0;  // T
  PrecisionName precision = PrecisionName::bf16;
  Fp8Recipe fp8_recipe{};
  Fp8Scale fp8_scale = Fp8Scale::power_of_two;
  Fp8Carrier fp8_carrier = Fp8Carrier::bf16;  // no key: asked_fp8_carrier() of config/kernel_choice.hpp
  bool fp8_experts = false;                   // the experts' products, too
  bool fp8_transposed = false;                // weight gradients of `block`, too, from copies scaled 128 x 1
  bool fp8_gather = false;                    // ZeRO-3 gathers weights of these products as codes of 8 bits
  bool fp8_dispatch = false;                  // rows go to routed experts as codes of 8 bits, with their scales
  std::int64_t fp8_history = 16;              // steps whose largest magnitudes give delayed scales
  std::int64_t fp8_first_layers_bf16 = 0, fp8_last_layers_bf16 = 0;  // blocks whose products stay in the carrier's type
  std::uint64_t seed = 0;
  Recompute recompute = Recompute::none;
  std::int64_t recompute_full_layers = 0;  // first blocks of each stage that recompute all, whatever the others do
  std::int64_t zero_stage = 0;
  Accumulation accumulate = Accumulation::automatic;
  ReductionLevels reduction = ReductionLevels::one_level;
  GatherPolicy gather = GatherPolicy::microbatch;
  Overlap overlap = Overlap::none;
  double z_loss_coefficient = 0;
  std::int64_t head_chunk_rows = 0;       // rows whose logits exist at a time; 0 = chosen from vocabulary and precision
  std::int64_t max_not_finite_steps = 1;  // stop (code 4) after so many steps in a row with NaN or Inf
  SpikeAction spike = SpikeAction::none;
  double spike_loss = 1.5, spike_norm = 10;  // times the median of the last steps; 0 = no limit
  std::int64_t spike_window = 100;           // steps of the medians
  std::int64_t spike_most = 10;              // updates left out, or returns to a checkpoint, of a run
  std::int64_t check_replicas_steps = 0, check_gradients_steps = 0;  // 0 = never
  ReplicaAction replicas_differ = ReplicaAction::stop;
  std::int64_t validate_every_steps = 0;  // 0 = never
  std::int64_t validation_sequences = 0;  // of each held-out set; 0 = all
  std::vector<std::string> frozen;        // patterns of names of units' tensors that training leaves as they are

  // Whether what FP8 doesn't round is bf16.
  bool computes_in_bf16() const {
    return precision == PrecisionName::bf16 || (precision == PrecisionName::fp8 && fp8_carrier == Fp8Carrier::bf16);
  }
};

// Tensors whose names match `pattern` (config/pattern.hpp), and what is theirs; absent: the optimizer's own.
struct OptimizerGroup {
  std::string pattern;
  std::optional<double> learning_rate, weight_decay;
  std::optional<OptimizerName> optimizer;

  friend bool operator==(const OptimizerGroup&, const OptimizerGroup&) = default;
};

struct OptimizerDeck {
  OptimizerName name{};
  double learning_rate = 0;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double momentum = 0.9;          // of sgd
  MuonScale muon_scale{};         // of a matrix's update
  double adam_learning_rate = 0;  // of what has AdamW beside muon; 0 = learning_rate
  std::int64_t soap_basis_every_steps = 10;
  std::int64_t soap_largest_side = 10000;  // of a matrix; longer ones aren't rotated
  double clip_norm = 1.0;                  // 0 = no clipping
  RateSchedule schedule = RateSchedule::cosine;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // 0 = train.steps - warmup_steps
  double min_ratio = 0.1;
  WsdTail wsd_tail = WsdTail::linear;
  double restart_factor = 1;       // of cosine_restarts: each period is so many times the one before
  std::string rate_points;         // of piecewise: "step:ratio, …" (config/rate_points.hpp)
  std::int64_t cooldown_from = 0;  // the step from which the rate falls to its end; 0 = none
  double qk_clip = 0;              // largest attention logit that leaves queries and keys as they are; 0 = any
  StateType moments = StateType::compute_default;
  StateType master_weights = StateType::compute_default;  // bf16: those that layers read, with no other copy
  StateType gradients = StateType::compute_default;       // sums over the microbatches of a step
  std::vector<OptimizerGroup> groups;                     // of several that match, the first
};

// A part of a mixture. Its name stays what it is when its files move.
struct SourceDeck {
  std::string name;
  std::vector<std::string> files;
  std::vector<std::string> mask_files;  // one for each file, or none
  double weight = -1;                   // −1 = its number of samples
  std::int64_t max_epochs = 0;          // 0 = as data.at_end says
  bool operator==(const SourceDeck&) const = default;
};

// Weights from a step on; of sources that it doesn't name, 0.
struct PhaseDeck {
  std::int64_t from_step = 0;                           // 0 = from_tokens
  std::int64_t from_tokens = 0;                         // the first step behind so many tokens of training
  std::vector<std::pair<std::string, double>> weights;  // none: the sources' own
  std::int64_t sequence_tokens = 0;  // a divisor of T: samples are pieces of so many tokens; 0: whole
  std::optional<double> rate = {};   // what learning rates are multiplied by
  bool operator==(const PhaseDeck&) const = default;
};

// Held-out files whose loss has a name of its own.
struct ValidationDeck {
  std::string name;  // "": of the one set that data.validation_files are
  std::vector<std::string> files;
  std::vector<std::string> mask_files;  // one for each file, or none
  std::int64_t sequences = -1;          // 0 = all; −1 = train.validation_sequences
  bool operator==(const ValidationDeck&) const = default;
};

struct DataDeck {
  std::vector<std::string> files;
  std::vector<std::string> mask_files;  // one for each file, or none
  std::vector<SourceDeck> sources;      // in the place of files
  std::vector<PhaseDeck> phases;
  double temperature = 1;  // weights to the power of 1 / temperature
  AtEnd at_end = AtEnd::repeat;
  std::vector<ValidationDeck> validation;
  std::vector<std::string> validation_files;  // one set without a name, in the place of `validation`
  std::vector<std::string> validation_mask_files;
  std::vector<std::string> tasks;  // multiple-choice files (data/choice_task.hpp)
  TokenType dtype = TokenType::none;
  SampleOrder order = SampleOrder::sequential;
  std::int64_t document_end_token = -1;  // -1 = no document boundaries
  DocumentEnds document_ends = DocumentEnds::token;
  Packing packing = Packing::cut;
  std::string packing_directory;  // of the plans of best_fit; "" = <output.directory>/packing
  PositionOrigin positions = PositionOrigin::sample;

  bool has_documents() const { return document_end_token >= 0 || document_ends == DocumentEnds::index; }
  // All that is held out, by either of the two.
  std::vector<ValidationDeck> held_out() const {
    if (!validation.empty() || validation_files.empty()) return validation;
    return {{"", validation_files, validation_mask_files}};
  }
  // The name of a task: of its file, without directory and ending.
  static std::string task_name(const std::string& path) {
    const std::string name = path.substr(path.find_last_of('/') + 1);
    return name.substr(0, name.find_last_of('.'));
  }
  // Samples are pieces in some phase.
  bool has_pieces() const {
    return std::any_of(phases.begin(), phases.end(), [](const PhaseDeck& p) { return p.sequence_tokens > 0; });
  }
  // Each sample is one document.
  bool one_document() const { return !has_documents() && !has_pieces(); }
  // Positions start anew within samples.
  bool restarts_positions() const { return positions == PositionOrigin::document || has_pieces(); }
};

struct CheckpointDeck {
  std::string directory;  // "" = nothing is saved
  std::int64_t every_steps = 0;
  std::int64_t every_seconds = 0;
  std::int64_t keep_last = 0;
  std::int64_t keep_every_steps = 0;
  bool asynchronous = false;
  Resume resume = Resume::never;
  bool reset_optimizer = false;          // a restart takes nothing of the optimizer from another run's checkpoint
  std::string model_from;                // a checkpoint whose parameters a run starts with; "" = none
  std::string optimizer_from;            // files of what the optimizer starts with; "" = zeros
  bool stop_on_failure = true;           // false: training goes on when saving fails
  std::int64_t end_margin_seconds = 60;  // save and leave so long before the job's time limit
};

struct NumberRange {  // whole numbers, the last one among them
  std::int64_t first = 0, last = 0;
  bool operator==(const NumberRange&) const = default;
};

enum class TrackTo { none, wandb, wandb_online };  // of jobscripts/track.py, into files or over the network

struct OutputDeck {
  std::string directory;
  std::int64_t every_steps = 10;
  std::int64_t norms_every_steps = 0;  // between norms of weights and updates by unit; 0 = never
  std::string sample_prompt;           // the text that the sample at the end continues
  std::int64_t sample_tokens = 0;      // 0 = no sample
  double sample_temperature = 0.7;
  bool save_hf = false;                    // write the trained model as a Hugging Face directory, <directory>/hf
  bool tensorboard = false;                // write event files for TensorBoard, <directory>/tensorboard
  TrackTo track = TrackTo::none;           // start jobscripts/track.py beside the run
  std::vector<NumberRange> profile;        // steps whose timelines are written …
  std::vector<NumberRange> profile_ranks;  // … by these ranks; none = by all
};

struct MachineDeck {
  std::int64_t threads = 0;               // per rank; 0 = OMP_NUM_THREADS, else cores / ranks of this node
  std::int64_t workspace_mib = 64;        // what libraries (GEMM) may use
  double peak_tflops = 0;                 // per rank, for mfu; 0 = measured at start (CPU) or the device's data sheet
  std::int64_t communication_blocks = 0;  // multiprocessors for collectives beside products; 0 = not set apart
  std::int64_t first_deadline_seconds = 300, deadline_seconds = 60;  // beside the steps (0 = no watchdog), of a step
};

struct Deck {
  ModelDeck model;
  MeshDeck mesh;
  ScheduleDeck schedule;
  TrainDeck train;
  PreferenceDeck preference;
  OptimizerDeck optimizer;
  DataDeck data;
  CheckpointDeck checkpoint;
  OutputDeck output;
  MachineDeck machine;
};

}  // namespace forge
