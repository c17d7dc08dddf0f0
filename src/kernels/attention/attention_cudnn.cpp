#include "kernels/attention/attention_cudnn.hpp"

#include <cudnn_frontend.h>

#include <array>
#include <cstdio>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "kernels/kernels.hpp"
#include "model/cudnn_attention.hpp"

namespace forge {

namespace {

namespace fe = cudnn_frontend;

using Extents = std::vector<std::int64_t>;
using Pointers = std::unordered_map<std::int64_t, void*>;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// The tensors of both graphs; cuDNN knows them by these numbers.
enum Name : std::int64_t { q_ = 1, k_, v_, o_, lse_, d_o_, d_q_, d_k_, d_v_ };

void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) throw LibraryFailed(std::string(call) + ": " + cudnnGetErrorString(status));
}
void check(fe::error_t status, const char* call) {
  if (status.is_bad()) throw LibraryFailed(std::string(call) + ": " + status.get_message());
}

// What a graph is made for. Pitches: elements from a row of all heads to the next.
struct Shape {
  bool backward;
  std::int64_t sequences, rows, heads, kv_heads, size, value_size, window;
  double scale;
  std::array<std::int64_t, 8> pitch;  // q, k, v, o; d_o, d_q, d_k, d_v

  bool operator==(const Shape&) const = default;
};

class Graph {
 public:
  Graph(cudnnHandle_t handle, const Shape& shape) : shape_(shape) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (shape.backward)
      backward();
    else
      forward();
    check(graph_.build(handle, {fe::HeurMode_t::A}), "cuDNN, graph of attention");
    check(graph_.get_workspace_size(bytes_), "cuDNN, workspace of attention");
  }

  void run(cudnnHandle_t handle, Pointers& pointers, std::byte* workspace, std::size_t workspace_bytes) {
    if (to_size(bytes_) > workspace_bytes)
      throw BadInput("attention by cuDNN: it wants a workspace of " + std::to_string(bytes_) + " bytes for " +
                     std::to_string(shape_.sequences) + " sequences of " + std::to_string(shape_.rows) + " rows and " +
                     std::to_string(shape_.heads) + " heads, and has " + std::to_string(workspace_bytes) +
                     "; legal: a larger machine.workspace_mib, or FORGE_ATTENTION = tensor_cores");
    check(graph_.execute(handle, pointers, workspace), "cuDNN, attention");
  }

 private:
  // (sequences, heads, rows, columns), of rows of all heads.
  Extents extents(std::int64_t heads, std::int64_t columns) const {
    return {shape_.sequences, heads, shape_.rows, columns};
  }
  Extents strides(std::int64_t columns, std::size_t which) const {
    return {shape_.rows * shape_.pitch[which], columns, shape_.pitch[which], 1};
  }
  Tensor input(Name name, std::int64_t heads, std::int64_t columns, std::size_t which) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(name)
                             .set_dim(extents(heads, columns))
                             .set_stride(strides(columns, which)));
  }
  void output(const Tensor& tensor, Name name, std::int64_t heads, std::int64_t columns, std::size_t which) {
    tensor->set_output(true).set_uid(name).set_dim(extents(heads, columns)).set_stride(strides(columns, which));
  }
  template <class Options>
  void set_mask(Options& options) const {
    options.set_attn_scale(static_cast<float>(shape_.scale))
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    if (shape_.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(shape_.window));
  }

  // The statistics are rows' lse, where forge has them: (B·T, H).
  void forward() {
    const Shape& s = shape_;
    fe::graph::SDPA_attributes options;
    options.set_name("attention").set_generate_stats(true);
    set_mask(options);
    auto [o, lse] = graph_.sdpa(input(q_, s.heads, s.size, 0), input(k_, s.kv_heads, s.size, 1),
                                input(v_, s.kv_heads, s.value_size, 2), options);
    output(o, o_, s.heads, s.value_size, 3);
    lse->set_output(true).set_uid(lse_).set_data_type(fe::DataType_t::FLOAT);
    lse->set_dim(extents(s.heads, 1)).set_stride({s.rows * s.heads, 1, s.heads, 1});
  }
  // Here cuDNN below 9.26 reads (B, H, T) alone.
  void backward() {
    const Shape& s = shape_;
    fe::graph::SDPA_backward_attributes options;
    options.set_name("attention, backward").set_deterministic_algorithm(true);
    set_mask(options);
    const Tensor lse = graph_.tensor(fe::graph::Tensor_attributes()
                                         .set_uid(lse_)
                                         .set_data_type(fe::DataType_t::FLOAT)
                                         .set_dim(extents(s.heads, 1))
                                         .set_stride({s.heads * s.rows, s.rows, 1, 1}));
    auto [d_q, d_k, d_v] = graph_.sdpa_backward(
        input(q_, s.heads, s.size, 0), input(k_, s.kv_heads, s.size, 1), input(v_, s.kv_heads, s.value_size, 2),
        input(o_, s.heads, s.value_size, 3), input(d_o_, s.heads, s.value_size, 4), lse, options);
    output(d_q, d_q_, s.heads, s.size, 5);
    output(d_k, d_k_, s.kv_heads, s.size, 6);
    output(d_v, d_v_, s.kv_heads, s.value_size, 7);
  }

  Shape shape_;
  fe::graph::Graph graph_;
  std::int64_t bytes_ = 0;
};

// Of the first element of some sequences and heads.
template <class T>
void* address(const View<T, 3>& x, std::int64_t row, std::int64_t head) {
  return const_cast<bf16*>(x.row(row) + head * x.extent(2));
}

}  // namespace

struct CudnnAttention::Implementation {
  std::byte* workspace;
  std::size_t bytes;
  cudnnHandle_t handle = nullptr;
  std::list<std::pair<Shape, Graph>> graphs;  // the one that was used last first

  Implementation(void* memory, std::size_t size) : workspace(static_cast<std::byte*>(memory)), bytes(size) {
    check(cudnnCreate(&handle), "cudnnCreate");
  }
  ~Implementation() {
    graphs.clear();
    cudnnDestroy(handle);
  }

  Graph& graph(Stream& stream, const Shape& shape) {
    check(cudnnSetStream(handle, static_cast<cudaStream_t>(stream.native())), "cudnnSetStream");
    for (auto known = graphs.begin(); known != graphs.end(); ++known)
      if (known->first == shape) {
        graphs.splice(graphs.begin(), graphs, known);
        return known->second;
      }
    if (graphs.size() == most_graphs) graphs.pop_back();
    graphs.emplace_front(std::piecewise_construct, std::forward_as_tuple(shape), std::forward_as_tuple(handle, shape));
    return graphs.front().second;
  }
};

CudnnAttention::CudnnAttention(void* workspace, std::size_t workspace_bytes)
    : impl_(std::make_unique<Implementation>(workspace, workspace_bytes)) {}
CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::forward(Stream& stream, const CudnnCall& call, View<bf16, 3> o, View<float, 2> lse) {
  require(lse.dense(), "attention by cuDNN keeps lse dense");
  const AttentionShape& s = call.shape;
  const Shape shape{false,
                    s.sequences,
                    s.query_rows,
                    call.q.extent(1),
                    call.k.extent(1),
                    call.q.extent(2),
                    call.v.extent(2),
                    call.mask.window,
                    s.scale,
                    {call.q.pitch, call.k.pitch, call.v.pitch, o.pitch}};
  Pointers pointers{{q_, address(call.q, 0, 0)},
                    {k_, address(call.k, 0, 0)},
                    {v_, address(call.v, 0, 0)},
                    {o_, o.data},
                    {lse_, lse.data}};
  impl_->graph(stream, shape).run(impl_->handle, pointers, impl_->workspace, impl_->bytes);
}

void CudnnAttention::backward(Stream& stream, const CudnnCall& call, const CudnnGradients& g) {
  const AttentionShape& s = call.shape;
  const std::int64_t T = s.query_rows, H = call.q.extent(1), K = call.k.extent(1);
  const CudnnBackward part = cudnn_part({s.sequences, T, H, K, call.q.extent(2), call.v.extent(2)}, impl_->bytes);
  const Shape shape{
      true,
      part.sequences,
      T,
      part.heads,
      part.kv_heads,
      part.size,
      part.value_size,
      call.mask.window,
      s.scale,
      {call.q.pitch, call.k.pitch, call.v.pitch, g.o.pitch, g.d_o.pitch, g.d_q.pitch, g.d_k.pitch, g.d_v.pitch}};
  // lse by heads, in front of cuDNN's part of the workspace.
  const std::size_t turned_bytes = align_up(to_size(part.sequences * part.heads * T) * sizeof(float));
  require(turned_bytes <= impl_->bytes, "attention by cuDNN: no room for lse");
  auto* turned = reinterpret_cast<float*>(impl_->workspace);
  Graph& graph = impl_->graph(stream, shape);
  for (std::int64_t b = 0; b < s.sequences; b += part.sequences)
    for (std::int64_t k = 0; k < K; k += part.kv_heads) {
      const std::int64_t row = b * T, h = k * (H / K);
      for (std::int64_t i = 0; i < part.sequences; ++i)
        columns_to_blocks<float>(stream, columns_of(g.lse.slice(row + i * T, row + (i + 1) * T), h, part.heads),
                                 part.heads, 1, View<float, 2>(turned + i * part.heads * T, {{part.heads * T, 1}}));
      Pointers pointers{{q_, address(call.q, row, h)},
                        {k_, address(call.k, row, k)},
                        {v_, address(call.v, row, k)},
                        {o_, address(g.o, row, h)},
                        {lse_, turned},
                        {d_o_, address(g.d_o, row, h)},
                        {d_q_, address(g.d_q, row, h)},
                        {d_k_, address(g.d_k, row, k)},
                        {d_v_, address(g.d_v, row, k)}};
      graph.run(impl_->handle, pointers, impl_->workspace + turned_bytes, impl_->bytes - turned_bytes);
    }
}

std::size_t CudnnAttention::graphs() const {
  return impl_->graphs.size();
}

bool cudnn_built_in() {
  return true;
}
bool cudnn_is_preferred_here() {
  int architecture = 0;
  return std::sscanf(device_info().features, "sm_%d", &architecture) == 1 && architecture >= 100;
}

}  // namespace forge
