#include "parallel/not_finite.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "device/arena.hpp"
#include "kernels/kernels.hpp"

namespace forge {

namespace {

// Numbers of parameters of a unit that have such a weight, from a copy on the host.
template <class T, class V>
std::set<std::size_t> parameters_not_finite(const RankUnit<T>& unit, const View<V, 1>& weights, Stream& stream) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::set<std::size_t> found;
  for (std::int64_t begin = 0; begin < weights.size(); begin += most) {
    std::vector<V> values(to_size(std::min(most, weights.size() - begin)));
    copy_to_host(stream, values.data(), weights.data + begin, values.size() * sizeof(V));
    stream.synchronize();
    const std::int64_t at = unit.state.begin + begin;
    for (const ElementRun& run : runs_of(unit.local, {at, at + std::ssize(values)})) {
      const V* const from = values.data() + (run.local - at);
      if (!std::all_of(from, from + run.count, [](V value) { return std::isfinite(static_cast<double>(value)); }))
        found.insert(run.piece->parameter);
    }
  }
  return found;
}

// A sum that is finite has no such weight in it; one that isn't may only be too large. sum(1 + sum_partials).
template <class V>
double squares_of(const View<V, 1>& weights, double* sum, Stream& stream) {
  double squares = 0;
  fill_zero(stream, sum, sizeof *sum);
  sum_of_squares<V>(stream, weights, View<double, 1>(sum + 1, {{static_cast<std::int64_t>(sum_partials)}}),
                    View<double, 1>(sum, {{1}}));
  copy_to_host(stream, &squares, sum, sizeof squares);
  stream.synchronize();
  return squares;
}

}  // namespace

template <class T>
std::vector<NotFinite> tensors_not_finite(const ParameterStorage<T>& storage, Stream& stream, Arena& arena,
                                          bool own_names) {
  const Frame frame(arena);
  const bool room = arena.capacity() - arena.live() >= not_finite_bytes;
  auto* const sum = room ? static_cast<double*>(arena.allocate(not_finite_bytes, Category::workspace)) : nullptr;
  std::vector<NotFinite> found;
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const RankUnit<T>& unit = storage.unit(u);
    const auto look = [&]<class V>(const View<V, 1>& weights) {
      if (room && std::isfinite(squares_of(weights, sum, stream))) return;
      for (const std::size_t i : parameters_not_finite(unit, weights, stream)) {
        const Parameter& p = unit.local.parameters[i];
        found.push_back({own_names || p.hf_name.empty() ? p.name : p.hf_name, is_adapter(unit.local.kind)});
      }
    };
    if (unit.master_is_copy)
      look(unit.copy);
    else
      look(unit.master);
  }
  return found;
}

FORGE_INSTANTIATE_FUNCTION(tensors_not_finite);

}  // namespace forge
