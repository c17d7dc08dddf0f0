#pragma once

#include "device/device_memory.hpp"
#include "model/rotary_table.hpp"
#include "nn/run.plan.hpp"

namespace forge {

// Fills the rotary tables of a run's buffers, where the model has them.
template <class T>
void fill_rotary_buffers(Stream& stream, const BufferContext& context, const RunBuffers<T>& run) {
  if (!context.spec.rope()) return;
  const RotaryTable table = rotary_table(context.spec, rotary_rows(context));
  for (const auto& [to, values] : {std::pair{run.cosine, &table.cosine}, {run.sine, &table.sine}}) {
    const std::vector<acc_t<T>> converted(values->begin(), values->end());
    copy_to_device(stream, to.data, converted.data(), converted.size() * sizeof(acc_t<T>));
    stream.synchronize();
  }
}

}  // namespace forge
