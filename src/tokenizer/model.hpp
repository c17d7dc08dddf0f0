#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace forge {

// The workspace of a TokenModel, one for each thread: the model turns pieces of text into ids, is const and shared.
class ModelScratch {
 public:
  virtual ~ModelScratch() = default;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual std::unique_ptr<ModelScratch> make_scratch() const = 0;
  // Appends the ids of a piece of valid UTF-8 (a byte-level model takes any bytes).
  virtual void encode(std::string_view piece, ModelScratch& scratch, std::vector<std::int32_t>& ids) const = 0;
  // Where a piece may be cut behind `from` without a change of ids; its size where nothing says so.
  virtual std::size_t cut_behind(std::string_view piece, std::size_t /*from*/) const { return piece.size(); }
};

}  // namespace forge
