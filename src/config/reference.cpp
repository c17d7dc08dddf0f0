#include "config/reference.hpp"

#include <yaml-cpp/yaml.h>

#include "core/error.hpp"

namespace forge {

namespace {

std::vector<double> series(const YAML::Node& node, const char* key, const std::string& where) {
  const YAML::Node values = node[key];
  if (!values || !values.IsSequence()) throw BadInput(where + ": needs a list " + key);
  return values.as<std::vector<double>>();
}

}  // namespace

std::map<std::string, ReferenceSeries> read_reference(const std::string& file) {
  try {
    std::map<std::string, ReferenceSeries> result;
    for (const auto& entry : YAML::LoadFile(file)) {
      const auto name = entry.first.as<std::string>();
      const std::string where = file + ", " + name;
      result[name] = {series(entry.second, "loss", where), series(entry.second, "total_loss", where),
                      series(entry.second, "grad_norm", where), series(entry.second, "learning_rate", where)};
    }
    return result;
  } catch (const YAML::Exception& error) {
    throw BadInput(file + ": " + error.what());
  }
}

}  // namespace forge
