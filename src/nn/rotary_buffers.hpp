#pragma once

#include "device/memory.hpp"
#include "model/rotary_table.hpp"
#include "nn/buffer_set.hpp"

namespace forge {

// Fills the rotary tables of run_buffers(context), where the model has them.
template <class T>
void fill_rotary_buffers(Stream& stream, const BufferContext& context, const BufferSet& set) {
  if (!context.spec.rope()) return;
  const RotaryTable table = rotary_table(context.spec, context.microbatch.sequence_tokens);
  for (const auto& [id, values] : {std::pair{Buf::cosine, &table.cosine}, {Buf::sine, &table.sine}}) {
    const std::vector<acc_t<T>> converted(values->begin(), values->end());
    copy_to_device(stream, set.raw(id), converted.data(), converted.size() * sizeof(acc_t<T>));
    stream.synchronize();
  }
}

}  // namespace forge
