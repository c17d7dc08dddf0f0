#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "device/stream.hpp"

// Layouts of context-parallel attention, and the tokens of their ranks.

namespace forge::context_rig {

struct Layout {
  CpMethod method = CpMethod::ring;
  int cp = 1, tp = 1, two_level = 1;                        // the last: inner ranks of that method
  std::int64_t b = 1, T = 24, H = 4, K = 2, D = 8, Dv = 8;  // of the whole model
  std::int64_t window = 0;
  bool documents = false;
  double dropout = 0;
  int threads = 1;
  bool behind = true;  // exchanges have a stream of their own
  Stream::Kind compute = Stream::Kind::Inline;
};

// Ranks that exchange heads.
inline int inner_of(const Layout& n) {
  return n.method == CpMethod::two_level ? n.two_level : n.method == CpMethod::all_to_all ? n.cp : 1;
}

inline std::string text(const Layout& n) {
  constexpr const char* names[] = {"ring", "all_gather", "all_to_all", "two_level"};
  return std::string(names[static_cast<int>(n.method)]) + " cp " + std::to_string(n.cp) + " inner " +
         std::to_string(inner_of(n)) + " tp " + std::to_string(n.tp) + " b " + std::to_string(n.b) + " T " +
         std::to_string(n.T) + " H " + std::to_string(n.H) + " K " + std::to_string(n.K) + " Dv " +
         std::to_string(n.Dv) + " window " + std::to_string(n.window) + (n.documents ? " documents" : "") +
         " dropout " + std::to_string(n.dropout);
}

// A token: its row on one rank, sequence by sequence.
struct Token {
  std::int64_t sequence, position;
};

// Zigzag: rank c has chunks c and 2 cp − 1 − c of the 2 cp chunks of a sequence.
inline std::vector<Token> tokens_of(const Layout& n, int c) {
  std::vector<Token> list;
  const std::int64_t chunk = n.T / (2 * n.cp);
  for (std::int64_t s = 0; s < n.b; ++s)
    for (const std::int64_t part : {c, 2 * n.cp - 1 - c})
      for (std::int64_t t = 0; t < chunk; ++t) list.push_back({s, part * chunk + t});
  return list;
}

// All tokens in the order of the key buffers.
inline std::vector<Token> key_tokens(const Layout& n) {
  std::vector<Token> list;
  for (int first = 0; first < n.cp; first += inner_of(n))
    for (std::int64_t s = 0; s < n.b; ++s)
      for (int c = first; c < first + inner_of(n); ++c)
        for (const Token& t : tokens_of(n, c))
          if (t.sequence == s) list.push_back(t);
  return list;
}

}  // namespace forge::context_rig
