#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/kernels.hpp"

namespace forge {

namespace {

// Entries of a head: without rotation, with it, of a value.
struct Sizes {
  std::int64_t heads, plain, rope, value;

  FORGE_HD std::int64_t key() const { return plain + rope; }
  FORGE_HD std::int64_t up() const { return plain + value; }
};

template <class Up, class Key, class K, class V>
Sizes sizes_of(const View<Up, 3>& up, const View<Key, 2>& rope_key, const View<K, 3>& k, const View<V, 3>& v) {
  const Sizes n{k.extent(1), k.extent(2) - rope_key.columns(), rope_key.columns(), v.extent(2)};
  require(n.plain >= 0 && up.extent(1) == n.heads && v.extent(1) == n.heads && up.extent(2) == n.up(),
          "latent keys: heads or their sizes");
  require(up.rows() == k.rows() && v.rows() == k.rows() && rope_key.rows() == k.rows(), "latent keys: rows");
  return n;
}

}  // namespace

template <class T>
void latent_keys_forward(Stream& stream, View<const T, 3> up, View<const T, 2> rope_key, View<T, 3> k, View<T, 3> v) {
  const Sizes n = sizes_of(up, rope_key, k, v);
  parallel_rows(stream, k.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T *from = up.row(r), *rope = rope_key.row(r);
    T *key = k.row(r), *value = v.row(r);
    team.each(n.heads, n.plain, [=](std::int64_t h, std::int64_t j) { key[h * n.key() + j] = from[h * n.up() + j]; });
    team.each(n.heads, n.rope, [=](std::int64_t h, std::int64_t j) { key[h * n.key() + n.plain + j] = rope[j]; });
    team.each(n.heads, n.value,
              [=](std::int64_t h, std::int64_t j) { value[h * n.value + j] = from[h * n.up() + n.plain + j]; });
  });
}

template <class T>
void latent_keys_backward(Stream& stream, View<const T, 3> d_k, View<const T, 3> d_v, View<T, 3> d_up,
                          View<T, 2> d_rope_key) {
  using A = acc_t<T>;
  const Sizes n = sizes_of(d_up, d_rope_key, d_k, d_v);
  parallel_rows(stream, d_k.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T *key = d_k.row(r), *value = d_v.row(r);
    T *to = d_up.row(r), *rope = d_rope_key.row(r);
    team.each(n.heads, n.plain, [=](std::int64_t h, std::int64_t j) { to[h * n.up() + j] = key[h * n.key() + j]; });
    team.each(n.heads, n.value,
              [=](std::int64_t h, std::int64_t j) { to[h * n.up() + n.plain + j] = value[h * n.value + j]; });
    team.each(n.rope, [=](std::int64_t j) {
      A sum = A(0);
      for (std::int64_t h = 0; h < n.heads; ++h) sum += A(key[h * n.key() + n.plain + j]);
      rope[j] = T(sum);
    });
  });
}

#define FORGE_LATENT_KEYS(T)                                                                                 \
  template void latent_keys_forward<T>(Stream&, View<const T, 3>, View<const T, 2>, View<T, 3>, View<T, 3>); \
  template void latent_keys_backward<T>(Stream&, View<const T, 3>, View<const T, 3>, View<T, 3>, View<T, 2>);
FORGE_COMPUTE_TYPES(FORGE_LATENT_KEYS)

}  // namespace forge
