#include "model/spec.hpp"

#include <string>

#include "core/error.hpp"

namespace forge {

ModelSpec resolve_model(const ModelDeck& deck) {
  ModelSpec spec{deck};
  ModelDeck& o = spec.options;
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.head_dim == 0 && o.heads > 0) o.head_dim = o.width / o.heads;
  for (const auto& [name, value] : {std::pair{"layers", o.layers},
                                    {"width", o.width},
                                    {"heads", o.heads},
                                    {"kv_heads", o.kv_heads},
                                    {"head_dim", o.head_dim},
                                    {"ffn", o.ffn},
                                    {"vocabulary", o.vocabulary}})
    if (value < 1)
      throw BadInput(std::string("model.") + name + " = " + std::to_string(value) + ": must be at least 1");
  if (o.heads % o.kv_heads != 0)
    throw BadInput("model.heads = " + std::to_string(o.heads) +
                   " is no multiple of model.kv_heads = " + std::to_string(o.kv_heads));
  return spec;
}

}  // namespace forge
