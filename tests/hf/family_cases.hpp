#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "../config/support.hpp"
#include "config/check_parts.hpp"
#include "hf/config.hpp"

// Inputs and comparisons of the families' tests: small config.json.

namespace forge::test {

using nlohmann::json;

inline ModelDeck read(const json& config) {
  const Directory directory;
  directory.write("config.json", config.dump());
  return read_hf_config(directory.path(), {});
}

inline json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

inline json plain(const char* type, const json& changes = json::object()) {
  return with({{"model_type", type},
               {"vocab_size", 97},
               {"hidden_size", 32},
               {"intermediate_size", 56},
               {"num_hidden_layers", 5},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"max_position_embeddings", 64}},
              changes);
}

inline json beside_image(const char* type, const json& text, const json& changes = json::object()) {
  json inner = text;
  inner["model_type"] = std::string(type) + "_text";
  return with({{"model_type", type}, {"text_config", inner}, {"vision_config", {{"depth", 2}}}}, changes);
}

inline void expect_refused(const json& config, std::initializer_list<const char*> parts) {
  expect_bad_input([&] { read(config); }, parts);
}

// The model, legal as it is, and the one that its own config.json gives.
inline ModelDeck read_twice(const json& config) {
  Deck a, b;
  a.model = read(config);
  Report report;
  check_model(a.model, 16, report);
  EXPECT_NO_THROW(report.throw_if_any("the deck")) << config.dump(2);
  b.model = read(json::parse(write_hf_config(a.model)));
  check_model(b.model, 16, report);
  b.model.hf = a.model.hf;
  EXPECT_EQ(difference(a, b), "") << config.dump(2) << write_hf_config(a.model);
  return a.model;
}

}  // namespace forge::test
