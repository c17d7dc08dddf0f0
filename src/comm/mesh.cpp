#include "comm/mesh.hpp"

namespace forge {

Mesh::Mesh(const Environment& environment)
    : world_(environment.make_world()), replicas_(environment.make_world()), background_(environment.make_world()) {}

}  // namespace forge
