#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "config/kernel_choice.hpp"
#include "config/rounding_options.hpp"
#include "core/partials.hpp"
#include "core/short_list.hpp"
#include "core/to_size.hpp"
#include "core/view.hpp"
#include "model/optimizer_state.hpp"
#include "model/spec.hpp"

namespace forge {

// Every buffer of a step is a member of a struct, a View of its type, and each struct has a function that lists its
// members with their shapes (nn/*.plan.hpp). The arena allocates from these lists and from nothing else; plan/ sums
// them: that is why the planned peak is the arena's high-water mark, to the byte. R = rows of a microbatch on this
// rank; S = R / tp, rows of the residual stream and the norms (sequence parallelism). H, K, F and V are this rank's.

// The last reader of a forward pass's buffer: forward itself, or backward for inputs (B) or for weights (W).
enum class Reader { forward, backward_input, backward_weight };

struct BufferSpec {
  std::string_view name;
  Array<std::int64_t, 2> extents;
  DType dtype;
  Reader last_reader;
  // The View, and the function that points it to memory.
  void* member;
  void (*place)(void* member, void* memory, const Array<std::int64_t, 2>& extents);

  std::size_t bytes() const { return to_size(extents[0] * extents[1]) * size_of(dtype); }
};
// A list is made anew wherever a layer works, and takes no memory from the heap.
using BufferList = ShortList<BufferSpec, 64>;

// Arena bytes of a list: each buffer rounded up.
std::size_t aligned_bytes(const BufferList& list);
// Points the members into memory of as many bytes, one buffer behind the other.
void place(const BufferList& list, void* memory);

// The shape of one microbatch on one rank.
struct Microbatch {
  std::int64_t sequences = 1;        // b
  std::int64_t sequence_tokens = 1;  // T
  int cp = 1;                        // context-parallel ranks: each has T / cp tokens of every sequence

  std::int64_t local_tokens() const { return sequence_tokens / cp; }
  std::int64_t rows() const { return sequences * local_tokens(); }          // R, of this rank
  std::int64_t rows_of_all() const { return sequences * sequence_tokens; }  // of all cp ranks
};

// All that shapes the buffers of a rank.
struct BufferContext {
  ModelSpec spec;  // of this rank: its heads, feed-forward columns and vocabulary rows (layout/local_units.hpp)
  Microbatch microbatch;
  Precision precision;
  Recompute recompute = Recompute::none;
  std::int64_t head_chunk_rows = 0;  // resolved: 1 … R
  int tp = 1;
  CpMethod cp_method = CpMethod::ring;
  int cp_inner = 1;  // of cp, ranks that exchange heads of attention for positions (config/head_ranks.hpp)
  int ep = 1, etp = 1;
  int ep_nodes = 1;  // over which rows go to experts in two hops; 1: in one
  OptimizerState optimizer{};
  std::int64_t sources = 0;         // of the data, whose losses are summed apart; 0 = not apart
  bool document_positions = false;  // positions of tables start anew with each document
  bool attention_peaks = false;     // the largest attention logit of each head is kept over a step
  std::int64_t normed_units = 0;    // units whose weights' and updates' norms are reported
  RoundingOptions rounding{};
  KernelChoice kernels{};         // the kernels asked for
  bool grouped = false;           // products of routed experts take one launch
  bool cutlass = false;           // … by CUTLASS, behind a launch that describes the groups to it
  bool row_scores = false;        // an evaluation keeps its rows' scores of their labels
  bool pairs = false;             // a sample is a pair of texts of which the first is preferred
  bool checks_gradients = false;  // a step's gradients have a checksum (train/gradient_check.hpp)
  int tracks = 1;                 // passes that run at once: 2 with train.overlap = pairs
  std::int64_t cache_tokens = 0;  // of each sequence whose keys and values a generation keeps; 0: it keeps none
  double expert_load = 1;         // rows of the busiest ranks' experts over the mean: for work, not for sizes

  // Sums before the step's scalars: losses of sources; or margins of pairs, and how many are right.
  std::int64_t leading_sums() const { return pairs ? 2 : sources; }
  // Texts of the pairs of a microbatch.
  std::int64_t texts() const { return 2 * microbatch.sequences; }
  // Rows of the residual stream and the norms on this rank (sequence parallelism).
  std::int64_t stream_rows() const { return microbatch.rows() / tp; }
};

// Whether sums of T need a wider type.
template <class T>
inline constexpr bool rounds = !std::is_same_v<T, acc_t<T>>;

// Lists the members of structs. Results of a forward pass are kept until their last reader, or recomputed, as the
// policy says.
class BufferLister {
 public:
  enum class Part { all, saved, recomputed };  // of forward's results
  static constexpr Reader F = Reader::forward, B = Reader::backward_input, W = Reader::backward_weight;
  explicit BufferLister(const BufferContext& context, Part part = Part::all) : c(context), part_(part) {}

  const BufferContext& c;
  const ModelSpec& spec = c.spec;
  const std::int64_t R = c.microbatch.rows(), S = c.stream_rows();
  BufferList list;

  template <class P, int N>
  void add(View<P, N>& member, std::string_view name, std::int64_t rows, std::int64_t columns, Reader last = F) {
    list.push_back({name, {{rows, columns}}, dtype_of<P>, last, &member, place_view<P, N>});
  }
  // Members: one that every policy saves; one that whole blocks alone drop; one of a part that a policy names.
  template <class P, int N>
  void keep(View<P, N>& member, std::string_view name, std::int64_t rows, std::int64_t columns, Reader last) {
    if (part_ != Part::recomputed) add(member, name, rows, columns, last);
  }
  template <class P, int N>
  void save(View<P, N>& member, std::string_view name, std::int64_t rows, std::int64_t columns, Reader last) {
    if (wants(c.recompute != Recompute::full)) add(member, name, rows, columns, last);
  }
  template <class P, int N>
  void recompute(View<P, N>& member, Recompute::Part part, std::string_view name, std::int64_t rows,
                 std::int64_t columns, Reader last) {
    if (wants(!c.recompute.has(part))) add(member, name, rows, columns, last);
  }

 private:
  bool wants(bool kept) const { return part_ == Part::all || kept == (part_ == Part::saved); }
  template <class P, int N>
  static void place_view(void* member, void* memory, const Array<std::int64_t, 2>& e) {
    auto& view = *static_cast<View<P, N>*>(member);
    if constexpr (N == 1)
      view = View<P, 1>(static_cast<P*>(memory), {{e[0] * e[1]}});
    else
      view = View<P, 2>(static_cast<P*>(memory), e);
  }

  Part part_;
};

// f(T()) with the type that activations have: double, float or bf16.
template <class F>
auto with_compute_type(DType compute, F f) {
  switch (compute) {
    case DType::f64:
      return f(double());
    case DType::f32:
      return f(float());
    default:
      return f(bf16(0.f));
  }
}
template <class F>
auto with_compute_type(const Precision& precision, F f) {
  return with_compute_type(precision.compute, f);
}
// Bytes of a struct's list, for those who only count.
template <class S, class... Args>
std::size_t counted_bytes(const BufferContext& c, Args&... args) {
  S members;
  BufferLister lister(c);
  members.list(lister, args...);
  return aligned_bytes(lister.list);
}

// The types of a deck's run.
Precision precision_of(const Deck& deck);
// The context of a resolved deck; `local`: the model as a tensor-parallel rank computes it; `kernels`: those asked
// for.
BufferContext buffer_context(const Deck& deck, const ModelSpec& local, const KernelChoice& kernels = asked_kernels());

}  // namespace forge
