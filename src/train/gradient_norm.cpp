#include <limits>

#include "train/session.hpp"

namespace forge {

template <class T>
void Session<T>::add_norm() {
  for (std::size_t u = 0; u < storage_->size(); ++u) {
    const RankUnit<T>& s = storage_->unit(u);
    s.with_gradient([&]<class G>(const View<G, 1>& gradient) {
      for (const Range& part : s.counted)
        sum_of_squares<G>(stream_, gradient.slice(part.begin - s.state.begin, part.end - s.state.begin),
                          run_.norm_partials, scalar(&StepScalars::norm_squared));
    });
  }
}

// One element that this rank adds to the norm; a rank that adds none spoils its loss.
template <class T>
void Session<T>::spoil_gradient() {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t u = 0; u < storage_->size(); ++u) {
    const RankUnit<T>& s = storage_->unit(u);
    for (const Range& part : s.counted) {
      if (part.empty()) continue;
      return s.with_gradient([&]<class G>(const View<G, 1>& gradient) {
        const auto value = static_cast<G>(nan);
        copy_to_device(stream_, gradient.data + (part.begin - s.state.begin), &value, sizeof value);
        stream_.synchronize();
      });
    }
  }
  copy_to_device(stream_, scalar(&StepScalars::loss_sum).data, &nan, sizeof nan);
  stream_.synchronize();
}

#define FORGE_INSTANTIATE(T)            \
  template void Session<T>::add_norm(); \
  template void Session<T>::spoil_gradient();
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
