#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/short_list.hpp"
#include "core/view.hpp"
#include "model/parameters.hpp"

namespace forge {

struct TensorNames;

// The parameters of a layer are members of a struct, each a View of its type, and the struct has a function that lists
// them (nn/*.plan.hpp). One list serves both ends: the model's tensors, and the places of the Views in a rank's flat
// buffer.

// A name in parts, which stand behind each other.
using NameParts = ShortList<std::string_view, 4>;
using Splits = ShortList<Split, 4>;

// How tp ranks share rows or columns, by whole granules.
inline Splits split_rows(std::int64_t granule = 1) {
  return {{0, granule}};
}
inline Splits split_columns(std::int64_t granule = 1) {
  return {{1, granule}};
}

// One tensor of the checkpoint, as its layer declares it.
struct TensorSpec {
  NameParts name;  // forge's own, behind the unit's
  NameParts hf;    // in Hugging Face checkpoints; behind the block's, if any; empty: no family has the tensor
  ShortList<std::int64_t, 2> shape;
  Splits split = {};  // empty: every tensor-parallel rank has it whole
  Initial initial = Initial::zeros;
  double std = 0;           // of Initial::normal
  bool transposed = false;  // stored (in, out) there
  std::int64_t expert = -1;
  double offset = 0;                         // the files' values are less by this
  std::int64_t packed = 0;                   // experts whose values stand in one tensor there; 0: each has its own
  ShortList<std::int64_t, 3> hf_shape = {};  // there; empty: shape
  std::int64_t groups = 0;                   // Parameter::hf_groups
  bool whole_name = false;                   // hf has the block's name, if any
};

// A buffer with the elements of a unit from `begin` on: with all of them, or with its vectors', which stand
// behind the matrices.
template <class P>
struct UnitPart {
  P* data = nullptr;
  std::int64_t begin = 0;

  UnitPart() = default;
  UnitPart(P* first, std::int64_t first_element = 0) : data(first), begin(first_element) {}
  // The address of the unit's element `offset`; null where the buffer doesn't have it.
  P* at(std::int64_t offset) const { return data && offset >= begin ? data + (offset - begin) : nullptr; }
};

// Walks a list of parameters, to declare the tensors of a unit, or to point the members to memory. Members in the order
// of the list are the unit's groups.
class ParameterLister {
 public:
  // Declares the whole model's tensors.
  ParameterLister(const ModelSpec& whole, Unit& unit);
  // Points Views of P into a unit's buffer, or into two: gradients of vectors may be summed elsewhere than gradients of
  // matrices. `local`: the model as this tensor-parallel rank computes it.
  template <class P>
  ParameterLister(const ModelSpec& local, UnitKind kind, std::int64_t layer, const std::vector<ParameterGroup>& groups,
                  const UnitPart<P>& matrices, const UnitPart<P>& vectors)
      : spec(local),
        kind(kind),
        layer(layer),
        groups_(&groups),
        type_(dtype_of<std::remove_const_t<P>>),
        matrices_{matrices.data, matrices.begin},
        vectors_{vectors.data, vectors.begin} {}

  const ModelSpec& spec;
  const UnitKind kind;
  const std::int64_t layer;

  // A member that is one tensor.
  template <class P, int N>
  void add(View<P, N>& member, const TensorSpec& tensor) {
    add(member, tensor, section_of(tensor));
  }
  template <class P, int N>
  void add(View<P, N>& member, const TensorSpec& tensor, Section section) {
    Array<std::int64_t, N> extents{};
    for (int i = 0; i < N; ++i) extents[i] = tensor.shape[to_size(i)];
    start(member, extents);
    declare(tensor, section);
  }
  // A member that is several tensors; they follow.
  template <class P, int N>
  void start(View<P, N>& member, Array<std::int64_t, N> extents) {
    ++next_;
    if (declares()) return;
    const ParameterGroup& group = group_of<P>();
    if constexpr (N == 3) extents[0] = group.elements / (extents[1] * extents[2]);  // of experts, the ones here
    point(member, group, extents);
  }
  // A member of as many vectors as its place in the unit says.
  template <class P>
  void start_vectors(View<P, 2>& member, std::int64_t vectors) {
    ++next_;
    if (declares() || vectors == 0) return;
    const ParameterGroup& group = group_of<P>();
    point(member, group, {{vectors, group.elements / vectors}});
  }
  void tensor(const TensorSpec& tensor) { declare(tensor, section_of(tensor)); }

  bool declares() const { return unit_ != nullptr; }
  // Ends the list; throws where it left members of the unit out.
  void finish();

  // Names in the family's Hugging Face checkpoints. GPT-2 fuses q, k and v and stores matrices (in, out).
  TensorNames names() const;  // config/family.hpp
  bool gpt2() const;
  double norm_offset() const;  // added to the files' weights of norms
  bool mtp_names() const;      // multi-token prediction stands under "mtp."
  std::string_view hf(std::string_view others, std::string_view gpt2_name) const { return gpt2() ? gpt2_name : others; }

  // Standard deviations of matrices, and of the matrices that add to the residual stream.
  double matrix_std() const { return spec.options.initial_std; }
  double output_std() const;

 private:
  struct Memory {
    const void* data = nullptr;
    std::int64_t begin = 0;
  };
  template <class P>
  const ParameterGroup& group_of() const {
    require(next_ <= groups_->size() && type_ == dtype_of<std::remove_const_t<P>>,
            "a list of parameters is not that of its unit");
    return (*groups_)[next_ - 1];
  }
  template <class P, int N>
  void point(View<P, N>& member, const ParameterGroup& group, const Array<std::int64_t, N>& extents) const {
    const Memory& part = group.is_vector ? vectors_ : matrices_;
    if (!part.data || group.offset < part.begin) return;
    member = View<P, N>(static_cast<P*>(const_cast<void*>(part.data)) + (group.offset - part.begin), extents);
    require(member.size() == group.elements, "a parameter's View has another size than its place in the unit");
  }
  static Section section_of(const TensorSpec& tensor);
  void declare(const TensorSpec& tensor, Section section);

  Unit* unit_ = nullptr;
  std::vector<Parameter> list_;        // of the unit
  std::string name_begin_, hf_begin_;  // of names of tensors
  const std::vector<ParameterGroup>* groups_ = nullptr;
  DType type_{};
  Memory matrices_, vectors_;
  std::size_t next_ = 0;  // member of the list
};

// The unit that a struct of parameters lists.
template <class Members>
Unit declare_unit(const ModelSpec& spec, UnitKind kind, std::int64_t layer, std::string name) {
  Unit unit{kind, layer, std::move(name), {}, 0};
  ParameterLister lister(spec, unit);
  Members members;
  members.list(lister);
  lister.finish();
  return unit;
}

// Where the tensors of a block begin in the family's Hugging Face checkpoints.
std::string hf_block_name(const ModelSpec& spec, std::int64_t layer);

// Instantiates the struct S<P> of a layer's parameters: of views that are written, and of weights that are read.
#define FORGE_INSTANTIATE_PARAMETERS(S) \
  FORGE_INSTANTIATE_CLASS(S);           \
  template struct S<const double>;      \
  template struct S<const float>;       \
  template struct S<const bf16>

}  // namespace forge
