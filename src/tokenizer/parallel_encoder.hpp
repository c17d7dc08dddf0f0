#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.hpp"

namespace forge {

// Encoders of several threads. Long texts are dealt out to all of them; the ids are those of one thread.
class ParallelEncoder {
 public:
  // `threads` 0: as many as the process may use.
  ParallelEncoder(const Tokenizer& tokenizer, int threads);

  int threads() const { return static_cast<int>(encoders_.size()); }
  // Calls work(encoder, i) for each i below `count`, in any order, on all threads. What one throws is thrown again: of
  // several, that of the least i.
  void run(std::size_t count, const std::function<void(Encoder&, std::size_t)>& work);
  // Appends the ids of a long text. `chunk_bytes`: what a thread takes at a time.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, std::size_t chunk_bytes = 1 << 20);

 private:
  void encode_plain(std::string_view part, bool first, std::vector<std::int32_t>& ids, std::size_t chunk_bytes);
  bool encode_by_pattern(std::string_view part, std::vector<std::int32_t>& ids, std::size_t chunk_bytes);
  void encode_by_model(std::string_view part, std::vector<std::int32_t>& ids, std::size_t chunk_bytes);
  std::string normalized(std::string_view part, std::size_t chunk_bytes);

  const Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
};

// Cores that this process may run on.
int available_cores();

}  // namespace forge
