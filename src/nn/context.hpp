#pragma once

#include <array>
#include <vector>

#include "comm/communicator.hpp"
#include "core/random.hpp"
#include "device/arena.hpp"
#include "device/row_tape.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/kernels.hpp"
#include "nn/batch.plan.hpp"
#include "nn/fresh_sums.hpp"
#include "nn/run.plan.hpp"
#include "nn/segments.plan.hpp"

namespace forge {

// Where dropout acts in a block, and in the embedding (layer −1): part of its key.
enum class DropoutPlace : std::uint64_t { embedding, attention, attention_out, feed_forward };

// Keys and values of the rows that a generation has seen, and states and tails of gated DeltaNet behind them, by layer
// of the model; empty where another stage has it. Of one sequence; or with `places` of each of the microbatch's b
// sequences in its own part, `capacity` rows, row by position.
template <class T>
struct KvCache {
  std::vector<View<T, 2>> k, v;                // per layer (b capacity, K D), (b capacity, K Dv)
  std::vector<View<acc_t<T>, 2>> states;       // (b value heads Dk, Dv)
  std::vector<View<T, 2>> tails;               // (b (taps − 1), channels) before the convolution
  View<std::int32_t, 1> positions, documents;  // (b capacity); documents of one sequence alone
  std::int64_t length = 0;                     // of one sequence: rows that stand before the current ones
  View<const std::int32_t, 1> places;          // (R) where a row's key and value stand from now on; −1: nowhere
  std::int64_t capacity = 0;
};

// The ranks that share a layer with this one; null where the axis has one rank. `stream` is a Worker: exchanges of keys
// run in it, behind attention, rows on their way to experts, behind the shared ones, and those of tp ranks, behind W.
struct LayerGroups {
  Communicator* tp = nullptr;  // in the compute stream
  Communicator* cp = nullptr;  // in `stream` or in the compute stream, one at a time
  Stream* stream = nullptr;
  Communicator* ep = nullptr;                           // ranks with other experts, as cp
  Communicator* etp = nullptr;                          // ranks with other columns of the same experts, likewise
  Communicator* tp_behind = nullptr;                    // the same ranks as tp, in `stream`
  Communicator *ep_rail = nullptr, *ep_node = nullptr;  // of ep, in two hops, as ep
  // Of cp, where attention has two levels: ranks that exchange heads, in the compute stream, and those among which keys
  // go round, as cp.
  Communicator *cp_inner = nullptr, *cp_outer = nullptr;

  int tp_rank() const { return tp ? tp->rank() : 0; }
  int tp_size() const { return tp ? tp->size() : 1; }
  int cp_rank() const { return cp ? cp->rank() : 0; }
  int cp_size() const { return cp ? cp->size() : 1; }
  int ep_rank() const { return ep ? ep->rank() : 0; }
  int ep_size() const { return ep ? ep->size() : 1; }
  int etp_rank() const { return etp ? etp->rank() : 0; }
  int etp_size() const { return etp ? etp->size() : 1; }
};

// Sees every choice of experts on the host, and may change it: for tests, which compare routing row by row, and give a
// run in low precision the choices of another one. Costs a wait for the stream.
class RoutingTape {
 public:
  virtual ~RoutingTape() = default;
  // choices(S, k) of rows of these samples and positions; true: they were changed.
  virtual bool visit(std::int64_t layer, View<const std::int64_t, 1> samples, View<const std::int32_t, 1> positions,
                     View<std::int32_t, 2> choices) = 0;
};

// Sees every product, every attention and every kernel over rows before it runs, for tests, which hold the lists of
// nn/*.plan.cpp to them.
class OperationTape : public RowTape {
 public:
  virtual void product(const Product& product) = 0;
  virtual void experts(const ExpertProduct& product) = 0;
  // The largest magnitudes that give the scales of a rounded operand, on the device.
  virtual void scales(Stream& stream, View<const float, 1> amax) = 0;
  // `heads`: without its positions, which the mask has, on the device: of what the stream was given before.
  virtual void attention(Stream& stream, const AttentionShape& shape, const AttentionMask& mask,
                         const AttentionProduct& heads) = 0;
  // Operations from here on belong to this pass of a pair; -1: the pair has ended.
  virtual void turn(int /*track*/) {}
};

class HostCounts;

// Workspace of products for the whole run.
template <class T>
struct ProductScratch {
  RoundingBuffers<T> rounding = {};  // of rounded ones
  View<T, 1> dropped = {};           // of adapters with dropout (DroppedRows)
};

// What the layers of a rank share for the whole run: made once, and never changed.
template <class T>
struct LayerServices {
  Stream& stream;
  Gemm& gemm;
  Arena& arena;
  const BufferContext& buffers;
  View<const acc_t<T>, 2> cosine = {}, sine = {};  // (T, rotary entries of a head / 2), with rotary positions;
  // of several tables (ModelSpec::rotary_tables) one below the other
  std::uint64_t seed = 0;
  LayerGroups groups = {};
  RouterState<T> routers = {};           // none of a model without experts
  FreshSums<acc_t<T>>* fresh = nullptr;  // gradients in which nothing stands yet; null: none
  AttentionKernel attention = AttentionKernel::cuda_cores;
  bool rows_in_order = false;       // AttentionMask::in_order of this rank's own rows
  bool one_document = false;        // the host knows that a sequence is one
  CudnnAttention* cudnn = nullptr;  // where the run takes_cudnn()
  View<acc_t<T>, 2> peaks = {};  // (layers, heads of the model) the step's largest attention logits; empty: not wanted
  std::array<ProductScratch<T>, 2> scratch = {};  // the second one of the backward pass of a pair
  AmaxHistory amax_history = {};                  // with the delayed recipe
  HostCounts* counts = nullptr;                   // of experts' rows; null: of a model without experts
};

// Factors of the routers' losses in a step's total_loss: of each scope's auxiliary loss, of each row's z-loss.
struct RouterScales {
  double balance = 0, z = 0;
};

// The largest magnitudes of a block's weights, by product, where they were taken behind the update
// (plan/rank_share.hpp). Empty: a product takes them.
using WeightAmaxes = std::array<View<float, 1>, to_size(BlockProduct::count_)>;

// A pass of a block whose products are rounded, or, as by default, of another layer.
struct RoundingPass {
  bool block = false;
  // (R) of the block's rows, of which filler, −1, has no part in scales; empty: there is none.
  View<const std::int64_t, 1> samples = {};
  WeightAmaxes weights = {};
  SavedAmaxes saved = {};      // no rows: products take amaxes for themselves
  std::int64_t layer = 0;      // in the history
  bool records = false;        // amaxes for the history: not recomputed ones, nor those of an evaluation
  RoundingCounts counts = {};  // of the pass's numbers, in steps that report them
};

// What holds for one pass of a layer: a value of its own for each task.
template <class T>
struct PassState {
  std::int64_t step = 1;              // part of every dropout key
  bool training = true;               // dropout acts
  const KvCache<T>* cache = nullptr;  // generation: attention also sees the rows before
  RouterScales router = {};
  RoutingTape* routing = nullptr;  // for tests, like the next
  OperationTape* operations = nullptr;
  RoundingPass rounding = {};
  const BufferContext* own_buffers = nullptr;  // of a layer under a policy of its own (layout/layer_kinds.hpp)
  // Of a pass that is a track of a pair: its number, its workspace (null: the run's), and both tracks.
  int track = 0;
  Arena* stack = nullptr;
  Tracks* tracks = nullptr;
};

// What a layer's pass has beside its parameters and buffers. Layers see it const.
template <class T>
struct Context : PassState<T> {
  const LayerServices<T>& services;
  // Of these, what most layers use.
  Stream& stream = services.stream;
  Gemm& gemm = services.gemm;
  Arena& arena = this->stack ? *this->stack : services.arena;
  const BufferContext& buffers = this->own_buffers ? *this->own_buffers : services.buffers;
  const LayerGroups& groups = services.groups;
  const ProductScratch<T>& scratch = services.scratch[to_size(this->track)];

  const ModelSpec& spec() const { return buffers.spec; }
  double dropout_rate() const { return this->training ? buffers.spec.options.dropout : 0; }
  std::uint64_t dropout_key(std::int64_t layer, DropoutPlace place) const {
    return random_key(services.seed, Purpose::dropout, static_cast<std::uint64_t>(this->step),
                      static_cast<std::uint64_t>(layer + 1) * 4 + static_cast<std::uint64_t>(place));
  }
};

// Memory for a list, in the workspace until the Frame around it ends.
inline void allocate(Arena& arena, const BufferList& list, Category category = Category::workspace) {
  place(list, arena.allocate(aligned_bytes(list), category));
}
// Memory for the members of a struct; args: what its list needs to know.
template <class S, class... Args>
void allocate(Arena& arena, const BufferContext& context, Category category, S& members, Args&... args) {
  BufferLister lister(context);
  members.list(lister, args...);
  allocate(arena, lister.list, category);
}
// A struct of workspace, until the Frame around it ends.
template <class S, class T, class... Args>
S workspace(const Context<T>& ctx, Args&... args) {
  S members;
  allocate(ctx.arena, ctx.buffers, Category::workspace, members, args...);
  return members;
}

}  // namespace forge
