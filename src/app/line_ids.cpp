#include "app/line_ids.hpp"

#include "core/error.hpp"

namespace forge {

std::vector<std::int32_t> ids_of_member(const nlohmann::json& value, const std::string& name, const ModelText& text,
                                        std::int64_t vocabulary, const std::string& place) {
  if (value.is_string()) return text.encode(value.get<std::string>(), place);
  if (!value.is_array())
    throw BadInput(place + ": " + name + " is " + shown_json(value) + "; legal: a text, or a list of token ids");
  std::vector<std::int32_t> ids;
  for (const nlohmann::json& id : value) {
    if (!id.is_number_integer() || id < 0 || id >= vocabulary)
      throw BadInput(place + ": " + shown_json(id) + " is no token id of the model; legal: 0 to " +
                     std::to_string(vocabulary - 1));
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::int32_t token_before_text(const ModelText& text, const std::string& place, const std::string& member) {
  if (const auto id = text.before_text()) return *id;
  throw BadInput(place + ": has no " + member +
                 ", and the model names no token that begins or ends a document; legal: a " + member +
                 ", data.document_end_token, or a tokenizer that names one");
}

}  // namespace forge
