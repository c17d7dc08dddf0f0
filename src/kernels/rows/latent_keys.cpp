#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/assign.hpp"

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
  note_rows(stream, "latent_keys_forward", bytes_in(up, rope_key), bytes_in(k, v));
  const Sizes n = sizes_of(up, rope_key, k, v);
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t h, Team team) {
    const T* from = up.row(r) + h * n.up();
    T* key = k.row(r) + h * n.key();
    const auto copy = [=](const T& in, T& out) { assign(out, in); };
    team.map(n.plain, copy, from, key);
    team.map(n.rope, copy, rope_key.row(r), key + n.plain);
    team.map(n.value, copy, from + n.plain, v.row(r) + h * n.value);
  };
  parallel_rows(stream, k.rows(), n.heads, row_width<T>(n.plain), body);
}

// One more part of a row than it has heads: the sum over them.
template <class T>
void latent_keys_backward(Stream& stream, View<const T, 3> d_k, View<const T, 3> d_v, View<T, 3> d_up,
                          View<T, 2> d_rope_key) {
  note_rows(stream, "latent_keys_backward", bytes_in(d_k, d_v), bytes_in(d_up, d_rope_key));
  using A = acc_t<T>;
  const Sizes n = sizes_of(d_up, d_rope_key, d_k, d_v);
  const bool aligned = aligned_rows(d_k) && n.key() * sizeof(T) % 16 == 0 && n.plain * sizeof(T) % 16 == 0;
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t h, Team team) {
    if (h == n.heads) {
      const T* key = d_k.row(r) + n.plain;
      return team.template column_sums<A>(
          n.rope, 0, n.heads, column_lines<T>(aligned, [=](std::int64_t i) { return column_line(key + i * n.key()); }),
          [=](NoScale, const T& x) { return A(x); }, [=](const A& sum, T& rope) { rope = T(sum); }, d_rope_key.row(r));
    }
    const T* key = d_k.row(r) + h * n.key();
    T* to = d_up.row(r) + h * n.up();
    const auto copy = [=](const T& in, T& out) { assign(out, in); };
    team.map(n.plain, copy, key, to);
    team.map(n.value, copy, d_v.row(r) + h * n.value, to + n.plain);
  };
  parallel_rows(stream, d_k.rows(), n.heads + 1, row_width<T>(n.plain), body);
}

FORGE_INSTANTIATE_FUNCTION(latent_keys_forward);
FORGE_INSTANTIATE_FUNCTION(latent_keys_backward);

}  // namespace forge
