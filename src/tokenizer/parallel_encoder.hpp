#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.hpp"

namespace forge {

// Encoders of several threads. Long texts are dealt out to all of them; the ids are the same as with one thread.
class ParallelEncoder {
 public:
  // `threads` 0: as many as the process may use.
  ParallelEncoder(const Tokenizer& tokenizer, int threads);

  int threads() const { return static_cast<int>(encoders_.size()); }
  // Calls work(encoder, i) for each i below `count`, in any order, on all threads. Throws an exception of a call again:
  // of several, the one of the least i.
  void run(std::size_t count, const std::function<void(Encoder&, std::size_t)>& work);
  // Appends the ids of a long text. `chunk_bytes`: a thread's part at a time.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, std::size_t chunk_bytes = 1 << 20);

 private:
  void encode_plain(std::string_view part, bool first, std::vector<std::int32_t>& ids, std::size_t chunk_bytes);
  bool encode_by_pattern(std::string_view part, std::vector<std::int32_t>& ids, std::size_t chunk_bytes);
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids, std::size_t chunk_bytes);
  using EncodeChunk = std::function<void(Encoder&, std::size_t chunk, std::vector<std::int32_t>& ids)>;
  void encode_chunks(const std::vector<std::size_t>& places, std::vector<std::int32_t>& ids, const EncodeChunk& encode);
  // Returns whether the text's start was kept.
  bool normalize(std::string& text, std::size_t chunk_bytes);
  void normalize_apart(const Normalizer& step, std::string& text, std::size_t chunk_bytes);

  const Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
};

// Cores that this process may run on.
int available_cores();

}  // namespace forge
