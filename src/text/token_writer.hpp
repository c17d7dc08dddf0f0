#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "text/token_format.hpp"

namespace forge {

// The header of an .npy file of tokens, npy_header_bytes long; `wide`: of uint32.
inline constexpr std::size_t npy_header_bytes = 128;
std::string npy_header(std::uint64_t tokens, bool wide);

// Writes one token file, of any format that TokenFile reads, piece by piece. The output, and files that belong beside
// it, appear under their names when complete and on the disk; a failure leaves nothing, and an older one as it was.
class TokenWriter {
 public:
  // Ids are 0 … vocabulary − 1: uint16 where they fit, else uint32; in Megatron's files int32, which has no uint32.
  // Throws BadInput where the name isn't one of the format: .npy, .bin (Megatron; the index goes to .idx beside), .ds,
  // any that isn't .npy, .idx or .ds (raw, llm.c); IoFailed where it can't be written.
  static std::unique_ptr<TokenWriter> open(const std::string& path, TokenFormat format, std::int64_t vocabulary);
  virtual ~TokenWriter() = default;

  // Tokens of the current document. An id outside the vocabulary is BadInput.
  virtual void append(std::span<const std::int32_t> ids) = 0;
  // The current document ends here; formats without an index of documents don't note it.
  virtual void end_document() = 0;
  // A document that hasn't ended ends here. Nothing is added later.
  virtual void finish() = 0;
};

}  // namespace forge
