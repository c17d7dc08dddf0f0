#include "config/aliases.hpp"

#include <array>

#include "config/suggest.hpp"
#include "core/parse.hpp"

namespace forge {

namespace {

constexpr const char* batch_rule =
    "microbatches of a step follow: train.global_batch_sequences / (train.microbatch_sequences x data-parallel ranks)";
constexpr const char* data_parallel =
    "data-parallel ranks are mesh.dp_shard (-1: the ranks that the other axes leave) and mesh.dp_replicate; FSDP is "
    "mesh.dp_shard with train.zero_stage: 3";
constexpr const char* of_adapters =
    "low-rank adapters are adapter.name: lora, with adapter.rank, adapter.alpha and adapter.targets";
constexpr const char* no_quantized =
    "low-rank adapters (adapter.name: lora) stand beside a model in the compute type, not beside a quantized one";
constexpr const char* no_preferences =
    "of preference losses forge has DPO (preference.name: dpo), without rewards or samples of the model";
constexpr const char* of_preferences = "direct preference optimization is preference.name: dpo, with preference.beta";
constexpr const char* wandb_key =
    "a run is sent to Weights & Biases by output.track: wandb, into files, or wandb_online";
constexpr const char* no_tracker =
    "forge sends runs to Weights & Biases alone (output.track: wandb): every step stands in metrics.jsonl of "
    "output.directory, a JSON object a line, and with output.tensorboard: true in TensorBoard's event files";
constexpr const char* event_files = "event files for TensorBoard are output.tensorboard: true";
constexpr const char* run_length = "a run is as long as train.steps says; its head says how many epochs that is";
constexpr const char* from_launcher = "ranks come from the launcher (mpirun -n N, srun), or from --ranks N";
constexpr const char* of_command_line = "a restart is said on the command line: --restart, or --restart DIR";

// Of one section alone, where a name has another meaning elsewhere.
struct SectionAlias {
  const char* section;
  Alias alias;
};
constexpr std::array section_aliases = {
    SectionAlias{"checkpoint", {"dir path folder outputdir save savedir", "checkpoint.directory", ""}},
    SectionAlias{"checkpoint", {"interval steps every freq frequency", "checkpoint.every_steps", ""}},
    SectionAlias{"checkpoint", {"keep keeplatestk keepn max", "checkpoint.keep_last", ""}},
    SectionAlias{"output", {"dir path folder", "output.directory", ""}},
    SectionAlias{"output", {"interval freq frequency", "output.every_steps", ""}},
    SectionAlias{"data", {"path paths dir file name train", "data.files", ""}},
    SectionAlias{"data", {"val valid eval test", "data.validation_files", ""}},
    SectionAlias{"data", {"type", "data.dtype", ""}},
    SectionAlias{"optimizer", {"type optimizer", "optimizer.name", ""}},
    SectionAlias{"optimizer", {"decay", "optimizer.weight_decay", ""}},
    SectionAlias{"schedule", {"type", "schedule.name", ""}},
    SectionAlias{"model", {"path name", "model.hf", "a Hugging Face directory"}},
    SectionAlias{"model", {"type modeltype architecture architectures", "model.family", ""}},
    SectionAlias{"train", {"batch", "train.global_batch_sequences", ""}},
};

constexpr std::array key_aliases = {
    // the optimizer
    Alias{"lr maxlr learningrate baselr peaklr lrmax initiallr peaklearningrate", "optimizer.learning_rate", ""},
    Alias{"minlr lrmin finallr endlr minlrfactor minlrratio lrminratio minlearningrate", "optimizer.min_ratio",
          "a share of learning_rate"},
    Alias{"warmup warmupiters warmupstep warmupsteps numwarmupsteps lrwarmupiters lrwarmupsteps",
          "optimizer.warmup_steps", ""},
    Alias{"warmupratio warmupfraction lrwarmupfraction warmupsamples", "optimizer.warmup_steps", "steps, not a share"},
    Alias{"lrdecayiters lrdecaysteps decayiters lrdecaysamples", "optimizer.decay_steps", ""},
    Alias{"lrscheduler lrschedule lrdecaystyle lrschedulertype scheduler decaystyle decaytype lrdecay",
          "optimizer.schedule", ""},
    Alias{"wd weightdecay", "optimizer.weight_decay", ""},
    Alias{"gradclip maxgradnorm clipgrad gradientclipping gradclipping maxnorm clip clipgradnorm gradientclipval "
          "gradclipnorm",
          "optimizer.clip_norm", ""},
    Alias{"eps adameps adamepsilon", "optimizer.epsilon", ""},
    Alias{"adambeta1 b1", "optimizer.beta1", ""},
    Alias{"adambeta2 b2", "optimizer.beta2", ""},
    Alias{"betas adambetas", "", "the two of them are optimizer.beta1 and optimizer.beta2"},
    Alias{"optim optimizer optimizername optimizertype", "optimizer.name", ""},
    // the model
    Alias{"hiddensize dmodel nembd nembed dim embeddim embeddingdim modeldim hidden embdim", "model.width", ""},
    Alias{"intermediatesize ffnhiddensize ffndim dff mlphiddensize hiddendim ninner mlpdim ffnsize innerdim "
          "feedforwarddim mlpratio ffndimmultiplier",
          "model.ffn", "the inner width itself"},
    Alias{"numhiddenlayers nlayer nlayers numlayers depth numblocks", "model.layers", ""},
    Alias{"numattentionheads nhead nheads numheads attentionheads", "model.heads", ""},
    Alias{"numkeyvalueheads nkvheads nkvhead numquerygroups numkvheads", "model.kv_heads", ""},
    Alias{"headsize kvchannels dhead", "model.head_dim", ""},
    Alias{"vocabsize vocab paddedvocabsize nvocab vocabularysize", "model.vocabulary", ""},
    Alias{"maxpositionembeddings npositions maxpositions", "model.max_positions",
          "a training's sequences have train.sequence_tokens"},
    Alias{"ropebase rotarybase theta", "model.rope_theta", ""},
    Alias{"rmsnormeps normeps layernormeps layernormepsilon", "model.norm_epsilon", ""},
    Alias{"hiddenact activationfunction actfn", "model.activation", ""},
    Alias{"tiewordembeddings tieembeddings weighttying enableweighttying", "model.tied_embeddings", ""},
    Alias{"attentionbias usebias bias", "model.qkv_bias", "the others: attention_out_bias, mlp_bias"},
    Alias{"initializerrange initstd initmethodstd", "model.initial_std", ""},
    Alias{"hiddendropout attentiondropout attndropout residpdrop attnpdrop embdpdrop", "model.dropout", ""},
    Alias{"windowsize attentionwindow", "model.sliding_window", ""},
    Alias{"numexperts nexperts numlocalexperts nroutedexperts nummoeexperts", "model.experts", ""},
    Alias{"numexpertspertok moeroutertopk topk moetopk nactivatedexperts numexpertspertoken", "model.experts_per_token",
          ""},
    Alias{"moeintermediatesize moeffnhiddensize", "model.expert_ffn", ""},
    Alias{"nsharedexperts numsharedexperts", "model.shared_expert_ffn", "the width of all of them together"},
    Alias{"routerauxlosscoef moeauxlosscoeff auxlosscoef auxlosscoeff loadbalanceloss",
          "model.auxiliary_loss_coefficient", ""},
    Alias{"modelnameorpath nameorpath hfpath modelpath modelname pretrained pretrainedmodel hfassetspath basemodel "
          "pretrainedmodelnameorpath",
          "model.hf", "a Hugging Face directory"},
    Alias{"loadpretrained", "model.load_weights", ""},
    Alias{"initfrom initialloadpath finetunefrom warmstart", "checkpoint.model_from",
          "of a Hugging Face directory: model.hf with model.load_weights"},
    Alias{"tokenizerpath tokenizername tokenizermodel tokenizernameorpath tokenizertype", "model.tokenizer", ""},
    Alias{"attnimplementation flashattention flashattn useflashattn attentionbackend sdpa", "",
          "a run takes the fastest kernels of attention that its GPU has for the deck"},
    // steps, batches, arithmetic
    Alias{"maxsteps trainiters maxiters trainingsteps numsteps totalsteps iterations trainsteps nsteps numtrainsteps "
          "iters",
          "train.steps", ""},
    Alias{"epochs numepochs numtrainepochs nepochs maxtokens traintokens trainsamples totaltokens", "", run_length},
    Alias{"batchsize globalbatchsize trainbatchsize totalbatchsize gbs globalbatch", "train.global_batch_sequences",
          "of all ranks together"},
    Alias{"microbatchsize localbatchsize perdevicetrainbatchsize microbatch perdevicebatchsize mbs devicebatchsize "
          "trainmicrobatchsizepergpu",
          "train.microbatch_sequences", ""},
    Alias{"gradientaccumulationsteps gradaccumsteps gradaccum gradacc gradientaccumulation accumulategradbatches "
          "batchaccumulationperreplica accumsteps nummicrobatches",
          "", batch_rule},
    Alias{"seqlen seqlength sequencelength blocksize contextlength maxseqlen maxlength maxseqlength contextwindow "
          "ctxlen nctx context contextsize",
          "train.sequence_tokens", ""},
    Alias{"gradreduceinbf16 reducedtype mixedprecisionreduce gradreducedtype allreducedtype gradreduceinfp32",
          "train.reduction", "gradients are summed in fp32; two_level sends them as bf16 between nodes"},
    Alias{"randomseed rngseed", "train.seed", ""},
    Alias{"fp16 float16 half", "train.precision", "bf16, fp32, fp64 or fp8: forge has no fp16"},
    Alias{"dtype bf16 bfloat16 mixedprecision amp fp8 float8 torchdtype paramdtype paramsdtype mixedprecisionparam",
          "train.precision", ""},
    Alias{"activationcheckpointing gradientcheckpointing activationcheckpoint recomputegranularity "
          "recomputeactivations checkpointactivations",
          "train.recompute", ""},
    Alias{"recomputenumlayers recomputelayers", "train.recompute_full_layers", ""},
    Alias{"recomputemodules recomputemethod", "train.recompute",
          "as in [norms, up_projections]: layernorm is norms, moe_act expert_activations, mla_up_proj up_projections; "
          "whole blocks are full, or train.recompute_full_layers of each stage"},
    Alias{"zero zerostage zerooptimization distributedoptimizer usedistributedoptimizer shardingstrategy deepspeed",
          "train.zero_stage", ""},
    Alias{"evalinterval evalsteps evalevery evaluationinterval valinterval valcheckinterval validationinterval "
          "evalfreq valevery validateevery",
          "train.validate_every_steps", ""},
    Alias{"evaliters evalbatches limitvalbatches", "train.validation_sequences", ""},
    Alias{"zloss zlossweight", "train.z_loss_coefficient", ""},
    Alias{"loss lossfn lossfunction criterion labelsmoothing", "",
          "the loss is cross-entropy; train.z_loss_coefficient and the model's coefficients add to it"},
    Alias{"compile torchcompile usecompile fused fusedoptimizer", "",
          "nothing is compiled at run time: kernels are those of the build"},
    Alias{"cpuoffload offload offloadoptimizer", "",
          "forge keeps all on the device; train.recompute, train.zero_stage and optimizer.moments: bf16 take less "
          "memory"},
    Alias{"earlystopping patience", "", "forge has no early stopping: train.validate_every_steps shows when to stop"},
    Alias{"loadin4bit loadin8bit quantization quantizationconfig", "",
          "forge has no quantised training; train.precision: fp8 multiplies in 8 bits"},
    // the mesh
    Alias{"fsdp fsdpsize dp dpsize dataparallel dataparallelsize dataparalleldegree dataparallelsharddegree shard", "",
          data_parallel},
    Alias{"ddp hsdp dataparallelreplicatedegree dpreplicas replicas", "mesh.dp_replicate", ""},
    Alias{"tensorparallelsize tensormodelparallelsize tensorparalleldegree tensorparallel tpsize tpdegree "
          "tensorparallelism",
          "mesh.tp", ""},
    Alias{"pipelineparallelsize pipelinemodelparallelsize pipelineparalleldegree pipelineparallel ppsize ppdegree "
          "pipelineparallelism",
          "mesh.pp", ""},
    Alias{"contextparallelsize contextparalleldegree contextparallel cpsize cpdegree", "mesh.cp", ""},
    Alias{"cpcommtype contextparallelcommtype contextparallelrotatemethod", "mesh.cp_method",
          "p2p is ring, all_gather all_gather, a2a all_to_all, a2a+p2p two_level"},
    Alias{"hierarchicalcontextparallelsizes", "mesh.cp_inner",
          "of sizes [a, b]: mesh.cp a x b, cp_method: two_level, cp_inner: a"},
    Alias{"expertparallelsize expertmodelparallelsize expertparalleldegree expertparallel epsize epdegree", "mesh.ep",
          ""},
    Alias{"experttensorparallelsize", "mesh.etp", ""},
    Alias{"sequenceparallel sequenceparallelism", "", "sequence parallelism comes with mesh.tp"},
    Alias{"virtualpipelinemodelparallelsize numlayerspervirtualpipelinestage interleave vpp", "schedule.virtual_stages",
          "with schedule.name: interleaved"},
    Alias{"pipelineparallelschedule pipelineschedule ppschedule", "schedule.name",
          "Interleaved1F1B is interleaved, ZBVZeroBubble zb_v, DualPipeV zb_v with train.overlap: pairs"},
    Alias{"overlapmoeexpertparallelcomm moecommoverlap", "train.overlap",
          "pairs hides exchanges of experts behind another microbatch"},
    Alias{"overlapgradreduce overlapparamgather overlapp2pcomm tpcommoverlap", "",
          "gathers, sums and transfers run behind computation without a key; train.overlap: pairs hides more"},
    Alias{"gpus ngpus numgpus nproc nprocpernode nodes numnodes nnodes worldsize numprocesses", "", from_launcher},
    Alias{"device backend accelerator", "",
          "each build has its device: build/cpu/forge computes on CPUs, build/cuda/forge on GPUs"},
    // data
    Alias{"dataset datasets datapath traindata trainfiles datasetpath trainbin traindatapath datadir datasetname "
          "trainfile trainpath",
          "data.files", "token files, which `forge tokenize` makes"},
    Alias{"valdata validdata evalfiles valfiles evaldata valdataset validationdata testfiles validfiles valfile",
          "data.validation_files", ""},
    Alias{"shuffle shuffled", "data.order", ""},
    Alias{"eostokenid eosid eod eostoken", "data.document_end_token", ""},
    Alias{"numworkers dataloadernumworkers prefetch prefetchfactor", "",
          "forge has no workers: each rank reads its samples from the token files"},
    // output and checkpoints
    Alias{"outputdir outdir rundir logdir loggingdir dumpfolder experimentdir workdir", "output.directory", ""},
    Alias{"loginterval loggingsteps logfreq logevery printevery logsteps logeverynsteps", "output.every_steps", ""},
    Alias{"savepretrained exporthf", "output.save_hf", ""},
    Alias{"profilestep enableprofiling profiling profiler", "output.profile", "steps, as in 10-12"},
    Alias{"save savedir checkpointdir ckptdir ckptpath checkpointspath checkpointpath checkpointfolder ckpt",
          "checkpoint.directory", ""},
    Alias{"saveevery saveinterval savesteps checkpointinterval checkpointevery ckptinterval ckptevery savefreq "
          "everynsteps",
          "checkpoint.every_steps", ""},
    Alias{"savetotallimit keeplatestk maxcheckpoints savetopk", "checkpoint.keep_last", ""},
    Alias{"asyncsave asyncmode async asynccheckpoint", "checkpoint.asynchronous", ""},
    Alias{"autoresume", "checkpoint.resume", "auto; or --restart on the command line"},
    Alias{"resumefrom resumefromcheckpoint load loadpath resumepath", "", of_command_line},
    // the machine
    Alias{"numthreads cpus cpuspertask ompnumthreads", "machine.threads", ""},
    Alias{"timeout nccltimeout distributedtimeout", "machine.deadline_seconds", ""},
};

// Whatever follows such a beginning.
constexpr std::array beginnings = {
    Alias{"lora", "adapter.name", of_adapters},
    Alias{"qlora", "", no_quantized},
    Alias{"peft", "adapter.name", of_adapters},
    Alias{"adapter", "adapter.name", of_adapters},
    Alias{"targetmodules", "adapter.targets", of_adapters},
    Alias{"dpo", "preference.name", of_preferences},
    Alias{"ppo", "", no_preferences},
    Alias{"grpo", "", no_preferences},
    Alias{"rlhf", "", no_preferences},
    Alias{"rewardmodel", "", no_preferences},
    Alias{"wandb", "output.track", wandb_key},
    Alias{"usewandb", "output.track", wandb_key},
    Alias{"enablewandb", "output.track", wandb_key},
    Alias{"tensorboard", "", event_files},
    Alias{"enabletensorboard", "", event_files},
    Alias{"mlflow", "", no_tracker},
    Alias{"reportto", "output.track", wandb_key},
    Alias{"comet", "", no_tracker},
    Alias{"usetensorboard", "", event_files},
};

constexpr std::array aliases_of_sections = {
    Alias{"evaluation eval validation val", "",
          "validation is train.validate_every_steps with data.validation_files, or data.validation of several sets; "
          "`forge evaluate` does it alone"},
    Alias{"training trainer trainingarguments trainingargs global", "train", ""},
    Alias{"parallelism parallel distributed dist parallelconfig", "mesh", ""},
    Alias{"fsdp dataparallel ddp", "", data_parallel},
    Alias{"optim optimiser optimization optimisation solver", "optimizer", ""},
    Alias{"lrscheduler scheduler lrschedule lr", "optimizer", "its keys schedule, warmup_steps and decay_steps"},
    Alias{"pipeline", "schedule", ""},
    Alias{"dataset datasets dataloader datastages", "data", ""},
    Alias{"checkpointing checkpoints ckpt saving", "checkpoint", ""},
    Alias{"logging log metrics job run runs general experiment", "output", ""},
    Alias{"hardware system device comm env environment", "machine", ""},
    Alias{"tokenizer", "", "the tokenizer is model.tokenizer"},
    Alias{"moe experts", "model", "keys of experts stand there"},
    Alias{"arch architecture network modelargs transformer", "model", ""},
    Alias{"activationcheckpoint activationcheckpointing", "", "recomputation is train.recompute"},
    Alias{"float8 quantize mixedprecision", "", "the arithmetic is train.precision"},
    Alias{"profiling profile profiler", "", "a step's timeline is output.profile"},
    Alias{"generation sampling sample", "",
          "a sample at the end is output.sample_tokens; `forge generate` makes others"},
    Alias{"compile", "", "nothing is compiled at run time: kernels are those of the build"},
    Alias{"deepspeed", "", "the layout is the section mesh, with train.zero_stage"},
};

template <class List>
const Alias* begun_in(const List& list, const std::string& letters) {
  for (const Alias& alias : list)
    if (letters.starts_with(alias.names)) return &alias;
  return nullptr;
}

}  // namespace

const Alias* alias_of_key(const std::string& section, const std::string& letters) {
  for (const SectionAlias& entry : section_aliases)
    if (entry.section == section && has_word(entry.alias.names, letters)) return &entry.alias;
  for (const Alias& alias : key_aliases)
    if (has_word(alias.names, letters)) return &alias;
  return begun_in(beginnings, letters);
}

const Alias* alias_of_section(const std::string& letters) {
  for (const Alias& alias : aliases_of_sections)
    if (has_word(alias.names, letters)) return &alias;
  return begun_in(beginnings, letters);
}

}  // namespace forge
