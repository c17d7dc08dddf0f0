#include "nn/expert_adapter.plan.hpp"

#include <cmath>
#include <string>

#include "config/family.hpp"

namespace forge {

// A and B start as those of LowRank.
template <class P>
void ExpertLowRank<P>::list(ParameterLister& l, BlockProduct product) {
  const ModelSpec& s = l.spec;
  const std::int64_t columns = low_columns(s, product), r = s.options.adapter.rank;
  if (columns == 0) return;
  const AdaptedTensors tensors = tensors_of(s, product);
  const auto declare = [&](std::int64_t e, const AdaptedTensor& t, bool is_a) {
    const std::string own = "experts." + std::to_string(e) + ".", hf = l.names().moe + own;
    NameParts hf_name{hf};
    for (const std::string_view part : with_end(t.hf, is_a ? ".lora_A.weight" : ".lora_B.weight"))
      hf_name.push_back(part);
    TensorSpec tensor{{own, t.name, is_a ? ".lora_a" : ".lora_b"}, hf_name, {t.rows, r}, t.b_split};
    tensor.expert = e;
    if (is_a) {
      tensor.shape = {r, t.columns};
      tensor.split = t.a_split;
      tensor.initial = Initial::uniform;
      tensor.std = 1 / std::sqrt(static_cast<double>(t.columns));
    }
    l.tensor(tensor);
  };
  const std::int64_t experts = l.declares() ? s.E() : 0;  // a rank's Views take no names
  l.start(a, {{s.E(), columns, tensors[0].columns}});
  for (std::int64_t e = 0; e < experts; ++e)
    for (const AdaptedTensor& t : tensors)
      if (t.adapted) declare(e, t, true);
  std::size_t i = 0;
  for (const AdaptedTensor& t : tensors) {
    if (!t.adapted) continue;
    l.start(b[i++], {{s.E(), t.rows, r}});
    for (std::int64_t e = 0; e < experts; ++e) declare(e, t, false);
  }
}

FORGE_INSTANTIATE_PARAMETERS(ExpertLowRank);

void list_expert_low_rows(Segments& list, BlockProduct product, std::int64_t rows) {
  const std::int64_t columns = low_columns(list.spec, product);
  if (columns > 0) list.expert_product(ProductOf::output, rows, columns, tensors_of(list.spec, product)[0].columns);
}

// B: d_u of each tensor, then dx. W: dB of each tensor, then dA.
void list_expert_adapter(Segments& list, BlockProduct product, ProductOf of, std::int64_t rows) {
  const std::int64_t columns = low_columns(list.spec, product), r = list.spec.options.adapter.rank;
  if (columns == 0) return;
  const AdaptedTensors tensors = tensors_of(list.spec, product);
  if (of == ProductOf::output) list_expert_low_rows(list, product, rows);
  for (const AdaptedTensor& t : tensors)
    if (t.adapted) list.expert_product(of, rows, t.rows, r);
  if (of != ProductOf::output) list.expert_product(of, rows, columns, tensors[0].columns);
}

}  // namespace forge
