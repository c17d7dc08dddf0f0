#include "app/token_bytes.hpp"

#include "app/model_text.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// False: there is no way from tokens to text.
bool read_bytes(const Deck& deck, const std::string& tokenizer, const std::string& pattern,
                std::vector<std::int64_t>& bytes) {
  const ModelText text(deck, tokenizer, pattern);
  if (!text.known()) return false;
  for (std::int64_t id = 0; id < deck.model.vocabulary; ++id)
    bytes[to_size(id)] = text.bytes_of(static_cast<std::int32_t>(id));
  return true;
}

}  // namespace

std::vector<std::int64_t> token_bytes(const Deck& deck, const World& world, const std::string& tokenizer,
                                      const std::string& pattern, std::string* note) {
  std::vector<std::int64_t> bytes(to_size(deck.model.vocabulary) + 1);  // and whether they are known
  if (world.rank() == 0) {
    try {
      bytes.back() = read_bytes(deck, tokenizer, pattern, bytes);
    } catch (const BadInput& error) {
      if (!note || !deck.model.tokenizer.empty()) throw;
      *note = std::string("validation without bits per byte: ") + error.what();
    }
  }
  world.make_world()->sum_host(bytes);
  if (bytes.back() == 0) return {};
  bytes.pop_back();
  return bytes;
}

}  // namespace forge
