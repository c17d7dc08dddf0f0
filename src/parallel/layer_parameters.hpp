#pragma once

#include "nn/head.hpp"
#include "nn/mtp.plan.hpp"
#include "nn/parameter_views.hpp"
#include "parallel/storage.hpp"
#include "plan/tasks.hpp"

namespace forge {

// The parameters of a layer's units, where gathered weights and gradients' sums stand now.
template <class T>
struct LayerParameters {
  const ParameterStorage<T>& storage;
  const ModelSpec& spec;
  const LayerPass& run;

  // The table of a unit with one: embedding, positions, output matrix. Frozen units have no gradients.
  View<const T, 2> table(std::size_t u) const { return table_of(spec, unit(u).local, unit(u).weights(run.pass)); }
  View<acc_t<T>, 2> table_gradient(std::size_t u) const {
    return unit(u).local.frozen ? View<acc_t<T>, 2>() : table_of(spec, unit(u).local, unit(u).matrices());
  }

  // The parameters that the pass reads, of the layer's unit, and of a block's experts and adapters.
  BlockParameters<const T> weights() const {
    BlockParameters<const T> w;
    if (run.pass == Pass::backward_weight) return w;
    bind_weights(w, run.layer->unit);
    if (has_experts()) bind_weights(w, run.layer->second);
    for (const std::size_t adapter : {run.layer->adapter, run.layer->expert_adapter})
      if (adapter != no_unit) bind_weights(w, adapter);
    return w;
  }
  // The gradients that it adds to. B adds to vectors, W to matrices and vectors; W of experts runs with B: the rows of
  // later rounds exist only there.
  BlockParameters<acc_t<T>> gradients() const {
    BlockParameters<acc_t<T>> g;
    if (run.pass == Pass::forward || run.recompute) return g;
    const bool of_matrices = run.pass != Pass::backward_input, of_experts = run.pass != Pass::backward_weight;
    const RankUnit<T>& own = unit(run.layer->unit);
    if (!own.local.frozen)
      bind<acc_t<T>>(g, spec, own.local, of_matrices ? own.matrices() : nullptr, own.vector_sums());
    if (has_experts() && of_experts && !unit(run.layer->second).local.frozen) {
      const RankUnit<T>& experts = unit(run.layer->second);
      bind<acc_t<T>>(g, spec, experts.local, experts.matrices(), experts.vector_sums());
    }
    const auto bind_adapter = [&](std::size_t u, bool wanted) {
      if (u != no_unit && wanted) bind(g, spec, unit(u).local, unit(u).matrices());
    };
    bind_adapter(run.layer->adapter, of_matrices);
    bind_adapter(run.layer->expert_adapter, of_experts);
    return g;
  }
  // Binds weights and gradients of the final norm, or of the norm behind a depth's block.
  void bind_norm(StateNorm<T>& norm) const {
    if (run.layer->state > 0) {
      norm.w = head_of_depth({}, weights().mtp);
      norm.g = head_of_depth({}, gradients().mtp);
      return;
    }
    bind_weights(norm.w, run.layer->unit);
    const RankUnit<T>& own = unit(run.layer->unit);
    if (run.pass != Pass::forward && !own.local.frozen) bind<acc_t<T>>(norm.g, spec, own.local, {}, own.vector_sums());
  }

 private:
  const RankUnit<T>& unit(std::size_t u) const { return storage.unit(u); }
  void bind_weights(auto& to, std::size_t u) const { bind(to, spec, unit(u).local, unit(u).weights(run.pass)); }
  bool has_experts() const { return run.layer->kind == LayerKind::block && run.layer->second != no_unit; }
};

}  // namespace forge
