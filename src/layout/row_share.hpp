#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "config/deck.hpp"
#include "layout/boxes.hpp"

namespace forge {

// The rows of its samples that a rank computes, and its rows of the vocabulary and of the stream.
struct RowShare {
  int cp = 1, cp_rank = 0;
  // Consecutive cp ranks whose keys' rows stand by sequence, then rank; 1: all by rank, then sequence.
  int cp_inner = 1;
  int tp = 1, tp_rank = 0;
  Range vocabulary{0, std::numeric_limits<std::int32_t>::max()};
  int mtp_depth = 0;                // depths of multi-token prediction that need shifted tokens and labels
  bool sources = false;             // rows have a number of their source
  bool document_positions = false;  // positions of tables start anew with each document
  bool pairs = false;               // samples are pairs of texts
  bool whole_documents = false;     // with cp ranks, rows of whole sequences have their documents
};

// Positions of a sequence of T tokens that a context-parallel rank computes, ascending: the chunks c and 2 cp − 1 − c
// of 2 cp equal ones, so that causal attention gives every rank the same work (Dubey et al. 2024, "Llama 3", section
// 3.3.2). T is a multiple of 2 cp.
std::vector<std::int32_t> zigzag_positions(std::int64_t sequence_tokens, int cp, int cp_rank);

}  // namespace forge
