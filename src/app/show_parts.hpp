#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/collectives.hpp"
#include "core/json.hpp"
#include "plan/allowance.hpp"
#include "plan/memory_plan.hpp"
#include "plan/setup.hpp"
#include "predict/machine.hpp"

namespace forge {

// The parts of `forge show`, before they are text or JSON.

// Units with the same parameters, of all layers of a kind.
struct AlikeUnits {
  const Unit* unit = nullptr;             // the first of them
  std::vector<std::int64_t> layers;       // empty: the unit belongs to no layer
  std::int64_t copies = 1;                // of each of `tensors`: layers, and their experts
  std::vector<const Parameter*> tensors;  // of experts, which are alike, the first one's
};
std::vector<AlikeUnits> alike_units(const RunSetup& setup);

// The first block of each kind.
struct BlockKind {
  std::int64_t layer;
  const char* name;
};
std::vector<BlockKind> block_kinds(const ModelSpec& spec);
// Saved activations of a block that isn't the first of its stage, its input included; of one microbatch.
BufferList saved_of_block(const BufferContext& context, std::int64_t layer, Recompute policy);

// A rank's bytes in a step, by group: of the ranks that differ (stages and shards), the one that sends most there.
struct SentByGroup {
  std::vector<std::pair<std::string, Traffic>> groups;  // without those in which nobody sends
  std::size_t shards = 0;                               // that were looked at, of a stage
};
// `shares`: of the first rank of each stage, where they are known.
SentByGroup sent_by_group(const RunSetup& setup, const std::vector<RankShare>& shares = {});

// Costs and savings of rounding on the first rank in a step; "" where nothing is rounded.
std::string rounding_text(const RunSetup& setup);
// Adds its numbers, if any, to the deck's.
void add_rounding(JsonLine& deck, const RunSetup& setup);

// Allowances for libraries, where ranks have GPUs.
std::vector<Allowance> gpu_allowances(const RunSetup& setup);

// As parts of `forge show --json`: memory of each pipeline rank at its peak, alone, and with `gpu_allowances`; bytes
// sent; the resolved deck.
std::vector<JsonLine> stages_json(const std::vector<MemoryPlan>& plans);
JsonLine memory_json(const RunSetup& setup, const std::vector<MemoryPlan>& plans);
JsonLine sent_json(const RunSetup& setup, const std::vector<RankShare>& shares = {});
JsonLine deck_json(const Deck& deck);

// The setup of the first rank of the pipeline stage that computes most.
RunSetup busiest(const RunSetup& setup);

// The work of the rank of `setup` in a step, phase by phase, from the lists that run: FLOP, bytes, launches; the floor
// on a machine (FLOP over its peak, bytes over its memory's bandwidth), and the planner's time there.
std::string cost_table(const RunSetup& setup, const Machine& machine);
JsonLine cost_json(const RunSetup& setup, const Machine& machine);

// "0 to 2, 5": ascending numbers, neighbours drawn together; of many pieces the first three and the last.
std::string ranges_text(const std::vector<std::int64_t>& numbers);

// A model's experts, for `forge show`: the expert view of the mesh, a rank's part of them, parameters in all and at
// work for a token, rows and bytes of a round of dispatch. "" without experts.
std::string expert_text(const RunSetup& setup);
// Its numbers; nothing without experts.
JsonLine expert_json(const RunSetup& setup);

// `forge show --rates`: learning rate and batch at steps over the run, with bars, and where the schedule turns.
std::string rate_text(const RunSetup& setup);
std::vector<JsonLine> rates_json(const RunSetup& setup);

// `forge show --samples STEP`: the samples of this step, on any layout: of each sequence of the batch the place, and of
// each document in it the file, the tokens there and the text, cut, or ids where no tokenizer is known.
// BadInput: the run has no such step, or a file is wrong. In JSON all of the text, the tokens (T + 1) and the labels
// (T; −1: none).
std::string samples_text(const RunSetup& setup, std::int64_t step);
JsonLine samples_json(const RunSetup& setup, std::int64_t step);

// `forge show --tasks RANK`: the rank's tasks in a step, one by one, with the reads, writes and bytes of each. Layers,
// microbatches and whole passes that are alike stand there once, with their number.
std::string task_table(const RunSetup& setup, int rank);
// The same tasks, one by one, each with its bytes to each group.
std::vector<JsonLine> tasks_json(const RunSetup& setup, int rank);

}  // namespace forge
