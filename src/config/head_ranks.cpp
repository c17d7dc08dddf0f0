#include "config/head_ranks.hpp"

#include <algorithm>
#include <numeric>

#include "config/check_parts.hpp"

namespace forge {

namespace {

bool is_legal(const Deck& deck, std::int64_t inner) {
  const std::int64_t cp = deck.mesh.cp, tp = deck.mesh.tp, heads = deck.model.heads;
  return inner > 1 && inner < cp && cp % inner == 0 && heads % tp == 0 && heads / tp % inner == 0;
}

// cp ranks of a node, where nodes have whole groups of tp; 0: not known.
std::int64_t ranks_of_node(const MeshDeck& mesh) {
  return mesh.node_ranks % mesh.tp == 0 ? mesh.node_ranks / mesh.tp : 0;
}

std::int64_t two_level_ranks(const Deck& deck) {
  const MeshDeck& mesh = deck.mesh;
  if (mesh.cp_inner > 0) return mesh.cp_inner;
  const std::int64_t here = ranks_of_node(mesh);
  return here == 0 ? 0 : std::gcd(std::gcd(mesh.cp, here), deck.model.heads / mesh.tp);
}

}  // namespace

std::int64_t head_ranks(const Deck& deck) {
  if (deck.mesh.cp == 1) return 1;
  switch (deck.mesh.cp_method) {
    case CpMethod::ring:
    case CpMethod::all_gather:
      return 1;
    case CpMethod::all_to_all:
      return deck.mesh.cp;
    case CpMethod::two_level:
      break;
  }
  const std::int64_t inner = two_level_ranks(deck);
  return is_legal(deck, inner) ? inner : 1;
}

std::vector<std::int64_t> legal_head_ranks(const Deck& deck) {
  std::vector<std::int64_t> list;
  for (std::int64_t n = 2; n <= std::min(deck.mesh.cp / 2, deck.model.heads); ++n)
    if (is_legal(deck, n)) list.push_back(n);
  return list;
}

std::string head_ranks_problem(const Deck& deck) {
  const MeshDeck& mesh = deck.mesh;
  if (mesh.cp == 1) return "";
  if (mesh.cp_method != CpMethod::two_level)
    return mesh.cp_inner == 0 ? "" : equation("mesh.cp_inner", mesh.cp_inner) + "; legal: 0, or cp_method: two_level";
  if (is_legal(deck, two_level_ranks(deck))) return "";
  std::string legal;
  for (const std::int64_t n : legal_head_ranks(deck)) legal += (legal.empty() ? "; legal: " : ", ") + std::to_string(n);
  const std::string heads = "model.heads / tp = " + std::to_string(deck.model.heads / mesh.tp);
  if (legal.empty())
    return "mesh.cp_method = two_level with " + equation("mesh.cp", mesh.cp) + " and " + heads +
           ": no cp_inner between 1 and cp divides both; legal: cp_method: ring | all_gather";
  if (mesh.cp_inner > 0)
    return equation("mesh.cp_inner", mesh.cp_inner) + " must be more than 1 and less than " +
           equation("mesh.cp", mesh.cp) + ", and divide it and " + heads + legal;
  const std::int64_t here = ranks_of_node(mesh);
  if (here == 0)
    return "mesh.cp_inner = 0 with nodes that are not known, have different numbers of ranks or split tp" + legal;
  return "mesh.cp_inner = 0 takes the ranks of a node, where " + std::to_string(here) + " of " +
         equation("mesh.cp", mesh.cp) + " would lie" + legal +
         (deck.model.heads / mesh.tp % mesh.cp == 0 ? ", or cp_method: all_to_all" : "");
}

}  // namespace forge
