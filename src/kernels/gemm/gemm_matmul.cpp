#include "kernels/gemm/gemm_matmul.hpp"

#include <omp.h>

#include <array>
#include <dnnl.hpp>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "kernels/products_version.hpp"

namespace forge {

namespace {

// oneDNN takes as many threads as OpenMP would give the calling thread; this sets the number and puts it back.
class OmpThreads {
 public:
  explicit OmpThreads(int threads) : before_(omp_get_max_threads()), changed_(threads != before_) {
    if (changed_) omp_set_num_threads(threads);
  }
  ~OmpThreads() {
    if (changed_) omp_set_num_threads(before_);
  }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  int before_;
  bool changed_;
};

bool has_isa(dnnl_cpu_isa_t wanted) {
  const unsigned isa = dnnl_get_effective_cpu_isa();
  return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

// C = alpha A B + beta C. oneDNN 2 knows a scale when a primitive is made; version 3 a linear function behind the
// product.
template <class Attributes, class Operations = dnnl::post_ops>
void scale_and_add(Attributes& attributes, float alpha, float beta) {
  Operations behind;
  if constexpr (requires { attributes.set_output_scales(0, {alpha}); }) {
    if (alpha != 1) attributes.set_output_scales(0, {alpha});
  } else {
    if (alpha != 1) behind.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0);
  }
  if (beta != 0) behind.append_sum(beta);
  if (behind.len() > 0) attributes.set_post_ops(behind);
}

template <class Matmul = dnnl::matmul>
typename Matmul::primitive_desc describe(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                         const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                         const dnnl::primitive_attr& attributes) {
  if constexpr (requires { typename Matmul::desc; })
    return {typename Matmul::desc(a, b, c), attributes, engine};
  else
    return {engine, a, b, c, attributes};
}

}  // namespace

void library_sgemm(int threads, bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                   float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
                   float* c, std::int64_t ldc) {
  const OmpThreads scope(threads);
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (status != dnnl_success)
    throw LibraryFailed("dnnl_sgemm of " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) +
                        " failed with status " + std::to_string(status));
}

bool Bf16Matmul::has_tiles() {
  return has_isa(dnnl_cpu_isa_avx512_core_amx);
}
bool Bf16Matmul::fast() {
  return has_isa(dnnl_cpu_isa_avx512_core_bf16);
}
bool Bf16Matmul::available() {
  return has_isa(dnnl_cpu_isa_avx512_core);
}

struct Bf16Matmul::Implementation {
  // m, n, k, strides of A and B, pitch, threads, fp32 output, alpha, beta
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, int, bool, float, float>;
  struct Primitive {
    dnnl::matmul::primitive_desc description;
    dnnl::matmul matmul;
    std::size_t scratchpad_bytes;
    std::array<dnnl::memory, 4> operands;  // A, B, C, scratchpad; each call sets where they are
  };

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, std::optional<Primitive>> primitives;  // empty: oneDNN refused the shape

  const std::optional<Primitive>& find(const Key& key);
};

const std::optional<Bf16Matmul::Implementation::Primitive>& Bf16Matmul::Implementation::find(const Key& key) {
  const auto known = primitives.find(key);
  if (known != primitives.end()) return known->second;
  const auto& [m, n, k, a_row, a_column, b_row, b_column, pitch, threads, fp32, alpha, beta] = key;
  using type = dnnl::memory::data_type;
  const dnnl::memory::desc a({m, k}, type::bf16, dnnl::memory::dims{a_row, a_column});
  const dnnl::memory::desc b({k, n}, type::bf16, dnnl::memory::dims{b_row, b_column});
  const dnnl::memory::desc c({m, n}, fp32 ? type::f32 : type::bf16, dnnl::memory::dims{pitch, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  scale_and_add(attributes, alpha, beta);
  std::optional<Primitive> made;
  try {
    const auto description = describe(engine, a, b, c, attributes);
    const auto place = [&](const dnnl::memory::desc& d) { return dnnl::memory(d, engine, nullptr); };
    made = Primitive{description,
                     dnnl::matmul(description),
                     description.scratchpad_desc().get_size(),
                     {place(description.src_desc()), place(description.weights_desc()), place(description.dst_desc()),
                      place(description.scratchpad_desc())}};
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) throw;
  }
  return primitives.emplace(key, std::move(made)).first->second;
}

Bf16Matmul::Bf16Matmul() try : impl_(std::make_unique<Implementation>()) {
} catch (const dnnl::error& error) {
  throw LibraryFailed(std::string("oneDNN doesn't start: ") + error.what());
}
Bf16Matmul::~Bf16Matmul() = default;

template <class TC>
bool Bf16Matmul::operator()(int threads, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Operand<bf16> a,
                            Operand<bf16> b, float beta, TC* c, std::int64_t pitch, void* workspace,
                            std::size_t workspace_bytes) {
  // oneDNN 3.7 takes a vector for dense, whatever its stride.
  if ((m == 1 && a.column != 1) || (n == 1 && (b.row != 1 || pitch != 1))) return false;
  const OmpThreads scope(threads);
  try {
    const auto& primitive = impl_->find(
        {m, n, k, a.row, a.column, b.row, b.column, pitch, threads, std::is_same_v<TC, float>, alpha, beta});
    if (!primitive || primitive->scratchpad_bytes > workspace_bytes) return false;
    // By the C interface: the other one makes a map of its arguments in every call.
    constexpr int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    void* const places[] = {const_cast<bf16*>(a.data), const_cast<bf16*>(b.data), c, workspace};
    dnnl_exec_arg_t arguments[4];
    for (std::size_t i = 0; i < 4; ++i) {
      primitive->operands[i].set_data_handle(places[i]);
      arguments[i] = {names[i], primitive->operands[i].get()};
    }
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive->matmul.get(), impl_->stream.get(), 4, arguments),
                            "could not execute a product");
    impl_->stream.wait();
  } catch (const dnnl::error& error) {
    throw LibraryFailed(std::string("oneDNN's matmul failed: ") + error.what());
  }
  return true;
}

template bool Bf16Matmul::operator()(int, std::int64_t, std::int64_t, std::int64_t, float, Operand<bf16>, Operand<bf16>,
                                     float, float*, std::int64_t, void*, std::size_t);
template bool Bf16Matmul::operator()(int, std::int64_t, std::int64_t, std::int64_t, float, Operand<bf16>, Operand<bf16>,
                                     float, bf16*, std::int64_t, void*, std::size_t);

std::string products_library_version() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

}  // namespace forge
