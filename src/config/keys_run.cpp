#include "config/fp8_recipe.hpp"
#include "config/key_bounds.hpp"
#include "config/key_builder.hpp"
#include "config/optimizer_table.hpp"
#include "config/schedule_name.hpp"

namespace forge {

ScheduleName default_schedule() {
  return default_schedule_name;
}

namespace {

using enum OnRestart;

constexpr std::int64_t most_ranks = 1 << 20, most_steps = std::int64_t{1} << 40, most_tokens = std::int64_t{1} << 30;

void add_mesh(std::vector<Key>& keys) {
  using M = MeshDeck;
  SectionKeys<&Deck::mesh> k("mesh", keys);
  k.integer<&M::pp>("pp", may_change, 1, most_ranks, "", "pipeline ranks");
  k.integer<&M::dp_replicate>("dp_replicate", may_change, 1, most_ranks, "", "data-parallel replicas");
  k.integer<&M::dp_shard>("dp_shard", may_change, -1, most_ranks, "",
                          "data-parallel ranks that share the states of zero_stage, replicas with zero_stage 0; -1 = "
                          "world size / the other axes");
  k.integer<&M::cp>("cp", may_change, 1, most_ranks, "", "context-parallel ranks: each has a part of every sequence");
  k.integer<&M::tp>("tp", may_change, 1, most_ranks, "",
                    "tensor- and sequence-parallel ranks: each has a part of every matrix");
  k.integer<&M::ep>("ep", may_change, 1, most_ranks, "",
                    "expert-parallel ranks, of the data-, context- and tensor-parallel ones of a stage: each has "
                    "experts / ep of the experts");
  k.integer<&M::etp>("etp", may_change, 0, most_ranks, "",
                     "tensor-parallel ranks of experts: each has a part of every expert; divides tp; 0 = tp");
  k.choice<&M::cp_method>("cp_method", may_change, {"ring", "all_gather", "all_to_all", "two_level"},
                          "how cp ranks exchange keys and values: in a ring behind attention, all at once, heads for "
                          "positions (Ulysses), or heads inside a node and keys in a ring over nodes; with cp 1 it has "
                          "no effect");
  k.integer<&M::cp_inner>("cp_inner", may_change, 0, most_ranks, "",
                          "two_level: consecutive cp ranks that exchange heads; more than 1, less than cp; divides cp "
                          "and heads / tp; 0 = those of a node, or as many of them as divide heads / tp");
}

void add_schedule(std::vector<Key>& keys) {
  using S = ScheduleDeck;
  SectionKeys<&Deck::schedule> k("schedule", keys);
  k.choice<&S::name>("name", may_change, {schedule_words.begin(), schedule_words.end()}, "order of microbatches");
  k.integer<&S::virtual_stages>("virtual_stages", may_change, 1, 1024, "",
                                "interleaved: model chunks per rank; zb_v has two");
  k.text<&S::split>(
      "split", may_change,
      "layers of each stage: even, balanced (embedding and head count as layers), or a string like Et*3|(tt|)*2tL");
  k.text<&S::file>("file", may_change,
                   "a CSV file with the schedule itself (docs/parallelism.md); empty = made by name");
}

void add_batches(SectionKeys<&Deck::train>& k) {
  using T = TrainDeck;
  k.integer<&T::steps>("steps", may_change, 1, most_steps, "", "updates of the parameters").required =
      Required::training;
  k.integer<&T::global_batch_sequences>("global_batch_sequences", stays, 1, most_sequences, "",
                                        "sequences of one step over all ranks; a multiple of microbatch_sequences x "
                                        "data-parallel size")
      .required = Required::training;
  k.maps<&T::batch_ramp>("batch_ramp", stays,
                         "from a step, or from a number of tokens, on: smaller batches than global_batch_sequences, "
                         "which all other steps have (docs/data.md); at a restart the batches of steps to come may "
                         "change, those so far stay");
  k.integer<&T::microbatch_sequences>("microbatch_sequences", may_change, 1, most_sequences, "",
                                      "sequences that a rank takes at a time, B");
  k.integer<&T::sequence_tokens>("sequence_tokens", stays, 1, most_tokens, "", "tokens of a sequence, T").required =
      Required::training;
}

void add_precision(SectionKeys<&Deck::train>& k) {
  using T = TrainDeck;
  k.choice<&T::precision>(
      "precision", stays, {"fp64", "fp32", "bf16", "fp8"},
      "of the arithmetic; bf16 keeps gradients, sums and master weights in fp32 (but for optimizer.gradients and "
      "optimizer.master_weights), and so does fp8, which rounds the operands of blocks' products "
      "(docs/parallelism.md)");
  std::vector<std::string> recipes;
  for (const Fp8RecipeRow& recipe : fp8_recipes) recipes.push_back(recipe.word);
  k.choice<&T::fp8_recipe>("fp8_recipe", stays, std::move(recipes), fp8_recipe_doc);
  k.choice<&T::fp8_scale>("fp8_scale", stays, {"power_of_two", "exact"},
                          "a scale is the largest power of two that fits, or largest number / amax");
  k.flag<&T::fp8_experts>("fp8_experts", stays,
                          "routed experts' products in fp8, too, with scales of activations by token");
  k.flag<&T::fp8_transposed>(
      "fp8_transposed", stays,
      "with block: weight gradients in fp8, too, but for routed experts', from copies of activations and output "
      "gradients with a scale for each column of 128 tokens of a sequence");
  k.flag<&T::fp8_gather>("fp8_gather", may_change,
                         "zero_stage 3 gathers the weights of these products as codes of one byte");
  k.flag<&T::fp8_dispatch>("fp8_dispatch", stays,
                           "rows and output gradients go to routed experts as codes of one byte, with their scales; "
                           "weight gradients of experts read the rounded rows");
  k.integer<&T::fp8_history>("fp8_history", stays, 1, 1 << 16, "",
                             "with fp8_recipe: delayed, the last steps whose largest magnitudes give the scales");
  k.integer<&T::fp8_first_layers_bf16>("fp8_first_layers_bf16", stays, 0, 1 << 20, "",
                                       "first blocks whose products fp8 leaves in the carrier's type");
  k.integer<&T::fp8_last_layers_bf16>(
      "fp8_last_layers_bf16", stays, 0, 1 << 20, "",
      "last blocks likewise, those of multi-token prediction counted behind the others");
}

void add_watches(SectionKeys<&Deck::train>& k) {
  using T = TrainDeck;
  k.choice<&T::spike>(
      "spike", may_change, {"none", "log", "skip", "back"},
      "on a spike of loss or gradient norm: nothing; a line in the log; also no update; also back to the "
      "newest checkpoint, from where the run goes on without this step's data (docs/running.md)");
  k.number<&T::spike_loss>("spike_loss", may_change, at_least(0),
                           "a spike is a loss above this times the median of the last steps; above 1, or 0 = none is");
  k.number<&T::spike_norm>("spike_norm", may_change, at_least(0), "likewise of the gradient norm before clipping");
  k.integer<&T::spike_window>("spike_window", may_change, 2, 1 << 16, "",
                              "last steps with an update whose medians count; before so many none is a spike");
  k.integer<&T::spike_most>(
      "spike_most", may_change, 1, most_steps, "",
      "updates that a run leaves out, or returns to a checkpoint; from then on spikes are logged");
  k.integer<&T::check_replicas_steps>("check_replicas_steps", may_change, 0, most_steps, "",
                                      "steps between comparisons of weights and states on ranks that must agree");
  k.integer<&T::check_gradients_steps>(
      "check_gradients_steps", may_change, 0, most_steps, "",
      "steps between those whose gradients a second data-parallel group computes, too, to find wrong products");
  k.choice<&T::replicas_differ>("replicas_differ", may_change, {"stop", "repair"},
                                "then: the run ends (exit code 7), or the odd ranks get the numbers of a majority");
}

void add_train(std::vector<Key>& keys) {
  using T = TrainDeck;
  SectionKeys<&Deck::train> k("train", keys);
  add_batches(k);
  add_precision(k);
  k.unsigned_integer<&T::seed>("seed", stays, "of initial values, sample order, dropout and sampling");
  add_recompute_keys(k);
  k.integer<&T::zero_stage>("zero_stage", may_change, 0, 3, "",
                            "1 shards optimizer state over dp_shard x cp, 2 also gradients, 3 also parameters");
  k.choice<&T::accumulate>("accumulate", may_change, {"automatic", "sharded", "unsharded"},
                           "reduce gradients after each microbatch, or once a step (zero_stage 0, 1 and 3); "
                           "automatic = once a step with zero_stage 0 and 1");
  k.choice<&T::reduction>("reduction", may_change, {"one_level", "two_level", "automatic"},
                          "of gradients over the shards of zero_stage 1 to 3: in one collective; two_level: in fp32 "
                          "inside each node, then rounded to bf16 between nodes and summed in fp32 there; "
                          "automatic = two_level where it is legal (docs/parallelism.md)");
  k.choice<&T::gather>("gather", may_change, {"microbatch", "step"},
                       "zero_stage 3: gather a unit for each use, or once a step");
  k.choice<&T::overlap>("overlap", may_change, {"none", "pairs"},
                        "beside the collectives of layers: nothing; the layers of another microbatch, one forward and "
                        "one backward at a time, with more microbatches in memory (docs/parallelism.md)");
  k.number<&T::z_loss_coefficient>("z_loss_coefficient", may_change, at_least(0),
                                   "adds this times the mean squared log-sum-exp of the logits to total_loss");
  k.integer<&T::head_chunk_rows>("head_chunk_rows", may_change, 0, most_tokens, "",
                                 "rows whose logits exist at a time; 0 = chosen from vocabulary and precision");
  k.integer<&T::max_not_finite_steps>("max_not_finite_steps", may_change, 1, most_steps, "",
                                      "stop (exit code 4) after so many steps in a row with NaN or Inf");
  add_watches(k);
  k.integer<&T::validate_every_steps>(
      "validate_every_steps", may_change, 0, most_steps, "",
      "steps between losses on the held-out sets; the last step has them, and of data.validation the start; 0 = never");
  k.integer<&T::validation_sequences>("validation_sequences", may_change, 0, most_sequences, "",
                                      "sequences of each held-out set, from its first one on; 0 = all");
  k.texts<&T::frozen>("frozen", stays,
                      "patterns of tensors that stay as they are, by either name that forge show --all has: whole "
                      "blocks, experts of a layer, tables; without gradients and state, in the compute type alone");
}

void add_update_rule(SectionKeys<&Deck::optimizer>& k) {
  using O = OptimizerDeck;
  std::vector<std::string> names;
  for (const OptimizerRow& row : optimizer_table) names.push_back(row.word);
  k.choice<&O::name>("name", stays, std::move(names),
                     "update rule (docs/optimizers.md); decay follows the tensor's rank: norms and biases have none");
  k.number<&O::learning_rate>("learning_rate", may_change, at_least(0), "at the end of warm-up").required =
      Required::training;
  k.number<&O::beta1>("beta1", may_change, from_below(0, 1), "decay of the first moment");
  k.number<&O::beta2>("beta2", may_change, from_below(0, 1), "decay of the second moment");
  k.number<&O::epsilon>("epsilon", may_change, more_than(0), "added to the root of the second moment");
  k.number<&O::weight_decay>("weight_decay", may_change, at_least(0),
                             "p is multiplied by 1 - learning rate x this, each step");
  k.number<&O::momentum>("momentum", may_change, from_below(0, 1), "sgd: share of the last step's sum of gradients");
  k.choice<&O::muon_scale>("muon_scale", may_change, {"moonlight", "keller"},
                           "muon: a matrix's update is multiplied by 0.2 sqrt(max(out, in)), or by sqrt(max(1, out / "
                           "in))");
  k.number<&O::adam_learning_rate>(
      "adam_learning_rate", may_change, at_least(0),
      "muon, normuon, soap: rate of the tensors that have AdamW: tables, output matrix, vectors; 0 = learning_rate");
  k.integer<&O::soap_basis_every_steps>("soap_basis_every_steps", may_change, 1, most_steps, "",
                                        "soap: updates from one refresh of the bases to the next");
  k.integer<&O::soap_largest_side>("soap_largest_side", stays, 1, 1000000, "",
                                   "soap: a side of a matrix with more rows or columns than this keeps its own basis");
  k.number<&O::clip_norm>("clip_norm", may_change, at_least(0), "largest global gradient norm; 0 = no clipping");
}

void add_rates(SectionKeys<&Deck::optimizer>& k) {
  using O = OptimizerDeck;
  k.choice<&O::schedule>("schedule", may_change,
                         {"constant", "linear", "cosine", "wsd", "inverse_sqrt", "rex", "cosine_restarts", "piecewise"},
                         "of the learning rate after warm-up (docs/optimizers.md); wsd stays, then decays over the "
                         "last decay_steps; `forge show DECK --rates` draws it");
  k.integer<&O::warmup_steps>("warmup_steps", may_change, 0, most_steps, "",
                              "steps of linear warm-up; a shorter run ends within it");
  k.integer<&O::decay_steps>("decay_steps", may_change, 0, most_steps, "",
                             "steps of the decay; 0 = train.steps - warmup_steps");
  k.number<&O::min_ratio>("min_ratio", may_change, {{}, 0, 1}, "where the decay ends, as a share of learning_rate");
  k.choice<&O::wsd_tail>("wsd_tail", may_change, {"linear", "cosine", "sqrt"},
                         "form of wsd's decay, and of a cooldown's");
  k.number<&O::restart_factor>(
      "restart_factor", may_change, at_least(1),
      "cosine_restarts: the first period is decay_steps, each one so many times the one before");
  k.text<&O::rate_points>("rate_points", may_change,
                          "piecewise: \"step:ratio, step:ratio, ...\", ratios of learning_rate, straight lines between "
                          "steps that ascend");
  k.integer<&O::cooldown_from>("cooldown_from", may_change, 0, most_steps, "",
                               "from this step on the rate falls from the schedule's to min_ratio at train.steps, as "
                               "wsd_tail says; 0 = it doesn't");
}

void add_optimizer(std::vector<Key>& keys) {
  using O = OptimizerDeck;
  SectionKeys<&Deck::optimizer> k("optimizer", keys);
  add_update_rule(k);
  add_rates(k);
  k.maps<&O::groups>(
      "groups", may_change,
      "tensors by name (* any characters, ? one; the first group that matches counts) with a rate, a decay or "
      "an optimizer of their own; muon, normuon and soap leave matrices of groups with optimizer: adamw to AdamW");
  k.number<&O::qk_clip>("qk_clip", may_change, at_least(0),
                        "QK-clip's tau (docs/optimizers.md): behind an update, queries and keys of heads whose largest "
                        "attention logit of the step was above it are scaled down to it; 0 = none");
  k.choice<&O::moments>("moments", may_change, {"default", "bf16"},
                        "type of moments; default = fp32, or fp64 with precision fp64; bf16 rounds stochastically");
  k.choice<&O::master_weights>(
      "master_weights", may_change, {"default", "bf16"},
      "type of master weights; default = fp32, or fp64 with precision fp64; bf16, with precision "
      "bf16 or fp8 alone: the weights in use are the only ones, rounded stochastically");
  k.choice<&O::gradients>(
      "gradients", may_change, {"default", "bf16"},
      "type of the sums of gradients over a step's microbatches; default = fp32, or fp64 with precision fp64; bf16, "
      "with precision bf16 or fp8 alone: each microbatch's gradient, in fp32, is added with stochastic rounding");
}

void add_data(std::vector<Key>& keys) {
  using D = DataDeck;
  SectionKeys<&Deck::data> k("data", keys);
  k.paths<&D::files>(
       "files", may_change,
       "token files, in order: raw, .npy, Megatron's .bin with its .idx, llm.c's .bin, .ds (docs/data.md)")
      .required = Required::files;
  k.paths<&D::mask_files>("mask_files", may_change,
                          ".npy files of 0 and 1, one for each of files: a token with 0 is no label");
  k.maps<&D::sources>("sources", stays,
                      "a mixture, in the place of files (docs/data.md): each source has its own order and epochs; "
                      "weights: all or none (its number of samples); paths may change at a restart");
  k.maps<&D::phases>("phases", stays,
                     "from a step, or from a number of tokens, on: other weights of the sources, samples in pieces "
                     "of sequence_tokens, a divisor of train.sequence_tokens, and learning rates times rate; those "
                     "that begin behind the checkpoint's step may change at a restart");
  k.number<&D::temperature>("temperature", stays, more_than(0),
                            "weights of a mixture are taken to the power of 1 / temperature");
  k.choice<&D::at_end>("at_end", may_change, {"repeat", "error"},
                       "when a source's samples are used up: again from the start, or the run is refused before it "
                       "begins; max_epochs of a source wins");
  k.maps<&D::validation>("validation", may_change,
                         "held-out sets, each with a loss, perplexity and bits per byte of its own (docs/data.md); "
                         "sequences: in the place of train.validation_sequences");
  k.paths<&D::validation_files>("validation_files", may_change,
                                "in the place of validation: held-out token files, one set without a name");
  k.paths<&D::validation_mask_files>("validation_mask_files", may_change, "mask_files of validation_files");
  k.paths<&D::tasks>("tasks", may_change,
                     "multiple-choice files of jobscripts/prepare_tasks.py: accuracies of each, named as the file is, "
                     "at the start and at the steps of train.validate_every_steps (docs/finetuning.md)");
  k.choice<&D::dtype>("dtype", may_change, {"none", "uint16", "uint32"},
                      "type of a token in files without a header; none = not declared, files with a header only");
  k.choice<&D::order>("order", stays, {"sequential", "shuffled"},
                      "order of the samples; shuffled anew in each epoch, from train.seed");
  k.integer<&D::document_end_token>("document_end_token", stays, -1, 99'999'999, "",
                                    "id that ends a document: attention and loss don't cross it; -1 = no documents");
  k.choice<&D::document_ends>("document_ends", stays, {"token", "index"},
                              "documents end at document_end_token, or where the files' indexes say (.idx, .ds.index)");
  k.choice<&D::packing>(
      "packing", stays, {"cut", "best_fit", "pairs"},
      "samples are cut from the text every T tokens, packed from whole documents, or of two documents "
      "each: the preferred text, then the other one");
  k.path<&D::packing_directory>("packing_directory", may_change,
                                "where the plans of best_fit and pairs are kept; empty = <output.directory>/packing");
  k.choice<&D::positions>("positions", stays, {"sample", "document"},
                          "where positions start from 0, of rotations and of the learned table");
}

void add_checkpoint(std::vector<Key>& keys) {
  using C = CheckpointDeck;
  SectionKeys<&Deck::checkpoint> k("checkpoint", keys);
  k.path<&C::directory>("directory", may_change,
                        "where step_00001000 and so on go, one at the end of the run in any case; empty = "
                        "nothing is saved; none = nothing, whatever the section's other keys and output.save_hf say: "
                        "`--set checkpoint.directory=none` for a trial");
  k.integer<&C::every_steps>("every_steps", may_change, 0, most_steps, "",
                             "steps between two of them; 0 = not by steps");
  k.integer<&C::every_seconds>("every_seconds", may_change, 0, most_steps, "",
                               "seconds between two of them, at the end of a step; 0 = not by time");
  k.integer<&C::keep_last>("keep_last", may_change, 0, 1 << 20, "",
                           "how many whole ones stay; older ones go when the new one was read back; 0 = all stay");
  k.integer<&C::keep_every_steps>("keep_every_steps", may_change, 0, most_steps, "",
                                  "beside those, the steps that this divides stay; 0 = none");
  k.flag<&C::asynchronous>("asynchronous", may_change, "copy the state, then write it behind the next steps");
  k.choice<&C::resume>("resume", may_change, {"never", "auto"},
                       "a start where checkpoints stand: never = is refused without --restart or --fresh, auto = "
                       "restarts from the newest; a job that Slurm starts again goes on in any case");
  k.path<&C::model_from>(
      "model_from", may_change,
      "a checkpoint of forge, or a directory of them (its newest): its parameters and routers' biases are the initial "
      "values of a run that starts with step 1, on any layout, data and precision; the model must be the same");
  k.path<&C::optimizer_from>("optimizer_from", may_change,
                             "directory with optimizer.safetensors, or such a file, in PyTorch's names "
                             "(docs/optimizers.md): the optimizer's states and number of updates, for a run that "
                             "starts with step 1 and the parameters of model.hf or checkpoint.model_from");
  k.flag<&C::reset_optimizer>("reset_optimizer", may_change,
                              "true: a restart from a checkpoint whose deck doesn't say so takes parameters, step and "
                              "data from there, and keys of "
                              "`optimizer` may all change; the optimizer's state begins anew");
  k.flag<&C::stop_on_failure>("stop_on_failure", may_change,
                              "when saving fails: true = stop (exit code 5), false = say so, go on, and keep lines of "
                              "log.txt and metrics.jsonl in memory until there is room; the last save must succeed");
  k.integer<&C::end_margin_seconds>("end_margin_seconds", may_change, 0, most_steps, "",
                                    "save and leave (exit code 75) so many seconds before the job's time limit "
                                    "(SLURM_JOB_END_TIME), and the time of a step, a validation and two saves");
}

void add_output(std::vector<Key>& keys) {
  using O = OutputDeck;
  SectionKeys<&Deck::output> k("output", keys);
  k.path<&O::directory>("directory", may_change, "run directory: deck.yaml, job_info, log.txt, metrics.jsonl")
      .required = Required::training;
  k.integer<&O::every_steps>("every_steps", may_change, 1, most_steps, "",
                             "steps between lines on the screen and in log.txt, and between looks for slow ranks; "
                             "metrics.jsonl has every step");
  k.integer<&O::norms_every_steps>("norms_every_steps", may_change, 0, most_steps, "",
                                   "steps between norms of weights and of their updates, by unit, and with fp8 of "
                                   "shares that it loses, in metrics.jsonl; 0 = never");
  k.text<&O::sample_prompt>("sample_prompt", may_change, "text that the sample at the end continues");
  k.integer<&O::sample_tokens>("sample_tokens", may_change, 0, most_tokens, "",
                               "length of the sample at the end; 0 = none");
  k.number<&O::sample_temperature>("sample_temperature", may_change, at_least(0),
                                   "of the sample at the end; 0 = the likeliest token");
  k.flag<&O::save_hf>("save_hf", may_change, "write the trained model as a Hugging Face directory, <directory>/hf");
  k.ranges<&O::profile>("profile", may_change, 1, most_steps,
                        "steps whose timelines are written for Perfetto or Chrome, "
                        "<directory>/profile/step_<step>_rank_<rank>.json; [] or 0 = none");
  k.ranges<&O::profile_ranks>("profile_ranks", may_change, 0, most_ranks - 1,
                              "ranks that write them; [] = all of them");
  k.flag<&O::tensorboard>("tensorboard", may_change,
                          "write curves, experts' load, deck and sample for TensorBoard, too: <directory>/tensorboard");
  k.choice<&O::track>("track", may_change, {"none", "wandb", "wandb_online"},
                      "start jobscripts/track.py beside the job, which sends the run to Weights & Biases: into files, "
                      "<directory>/wandb, or over the network; it needs python3 with the package wandb");
}

void add_machine(std::vector<Key>& keys) {
  using M = MachineDeck;
  SectionKeys<&Deck::machine> k("machine", keys);
  k.integer<&M::threads>("threads", may_change, 0, 4096, "",
                         "per rank; 0 = OMP_NUM_THREADS, else cores / ranks of the node");
  k.integer<&M::workspace_mib>("workspace_mib", may_change, 0, 1 << 20, "",
                               "memory for libraries (GEMM, cuDNN, CUTLASS), and for attention on a CPU");
  k.integer<&M::communication_blocks>(
      "communication_blocks", may_change, 0, 64, "",
      "multiprocessors of a GPU for collectives beside products: NCCL's groups there have at most so many blocks, and "
      "cuBLAS and CUTLASS choose products for the others; 0 = up to 16 blocks, and products for all");
  k.number<&M::peak_tflops>("peak_tflops", may_change, at_least(0),
                            "per rank, for mfu; 0 = measured at the start (CPU) or the device's data sheet");
  k.integer<&M::first_deadline_seconds>("first_deadline_seconds", may_change, 0, most_steps, "",
                                        "for the first step, and beside the steps (start, checkpoint, validation, "
                                        "sample, ...) without progress: a rank that takes longer ends the job (exit "
                                        "code 86); 0 = no watchdog");
  k.integer<&M::deadline_seconds>("deadline_seconds", may_change, 1, most_steps, "",
                                  "of a later step, or ten times the median step where that is longer");
}

}  // namespace

void add_run_keys(std::vector<Key>& keys) {
  add_mesh(keys);
  add_schedule(keys);
  add_train(keys);
  add_tuning_keys(keys);
  add_optimizer(keys);
  add_data(keys);
  add_checkpoint(keys);
  add_output(keys);
  add_machine(keys);
}

}  // namespace forge
