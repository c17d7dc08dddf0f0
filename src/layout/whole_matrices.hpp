#pragma once

#include <vector>

#include "core/to_size.hpp"
#include "layout/local_units.hpp"
#include "layout/rotated_state.hpp"
#include "model/buffers.hpp"
#include "nn/segments.plan.hpp"

namespace forge {

// Updates that need whole matrices (optimizer_table.hpp: MatrixWork). Every matrix of blocks and experts has an
// owner among the ranks that hold parts of it: ZeRO's shards x tp for dense units, the experts' shards x etp. In
// rounds, the ranks send their parts to the owners, which compute and send back. All of it is a pure function of the
// layout. A tensor that is split in parts of their own (q, k and v in one) is as many matrices.

// A rank's part of the matrices of a round: elements that follow each other in a unit's flat buffer, and from `at` on
// in the rank's buffer of the round.
struct HeldPart {
  std::size_t unit = 0;
  Range elements;  // of the unit's flat buffer
  UpdateRule rule;
  std::int64_t rows = 0, columns = 0;  // of the matrix
  std::int64_t at = 0;
  int owner = 0;       // in the group
  bool sends = false;  // to the owner; other ranks may hold a copy

  std::int64_t end() const { return at + elements.size(); }
};

// The part of rank `holder` of the group in a matrix that this rank owns: elements from `first` on of a piece of
// `width` columns, row-major, whose first one is (row, column) of the matrix.
struct OwnedPart {
  std::int64_t matrix = 0;  // in its stack
  int holder = 0;
  std::int64_t row = 0, column = 0, width = 0, first = 0, count = 0;
  bool sent = false;  // the holder sends it; the others have copies
  bool held = false;  // this rank is the holder: `at` is a place in its buffer of held parts, not of sent ones
  std::int64_t at = 0;
};

// A matrix that this rank owns: rows of a tensor of the checkpoint.
struct OwnedMatrix {
  std::size_t unit = 0, parameter = 0;  // in LocalUnit::parameters
  std::int64_t first_row = 0;
};

// Matrices (rows, columns) that this rank owns, updated together.
struct MatrixStack {
  std::int64_t rows = 0, columns = 0;
  std::vector<OwnedMatrix> matrices;
  std::int64_t first_kept = 0;  // where their states begin, among all states of matrices on this rank
  MatrixState state;            // of one of them
  bool rotates = false;         // with SOAP
  std::vector<OwnedPart> parts;

  std::int64_t count() const { return std::ssize(matrices); }
  std::int64_t kept() const { return state.elements; }
};

// Matrices of any shapes; layout/matrix_rounds.hpp chooses them.
struct MatrixRound {
  bool experts = false;
  int rank = 0;  // this one's number in its group
  std::vector<HeldPart> held;
  std::vector<MatrixStack> stacks;

  std::int64_t held_elements() const { return held.empty() ? 0 : held.back().end(); }
};

// The rounds of one rank. Three are under way at a time where there is anybody to send to: one on its way to the
// owners, one computed, one on its way back.
struct WholeMatrices {
  std::vector<MatrixRound> rounds;
  int buffers = 1;
  // The most elements of a round on any rank of the groups: parts that it holds, matrices of an owner; of a stack:
  // matrices, their smaller squares, rows; and its number of matrices.
  std::int64_t held = 0, received = 0, stack = 0, square = 0, rows = 0, batch = 0;
  bool rotates = false;    // with SOAP; its work has the sizes of …
  RotationSizes rotation;  // … one matrix, in the place of squares and rows
  std::int64_t kept = 0;   // elements kept of all matrices that this rank owns
};

// Where a rank stands in its groups: number `shard` of the shards, `tp` or `etp` among the ranks with a shard.
WholeMatrices whole_matrices(const std::vector<LocalUnit>& units, const LocalLayout& layout, const OptimizerDeck& deck);

// Newton and Schulz's iteration (optim/newton_schulz.hpp) of one matrix.
inline constexpr int newton_schulz_steps = 5;
double newton_schulz_flops(std::int64_t rows, std::int64_t columns);
// The products of an update with SOAP, but for refreshing the bases: covariances, gradient and first moment to the
// bases, and the update back.
double rotated_flops(const RotatedState& state);
// The products of a round on its owner, in their order.
void list_round(Segments& list, const MatrixRound& round);

// Memory of an update, a frame of the workspace.
template <class T>
struct MatrixBuffers {
  std::array<View<T, 1>, 3> held, received;  // by buffer: parts that this rank holds, parts that it was sent
  View<T, 1> x, y;                           // a stack's matrices, and the iteration's next ones
  View<T, 1> gram, polynomial;               // their smaller squares
  View<double, 1> row_squares, norms;        // sums of squares of rows; norms of matrices
  RotationBuffers<acc_t<T>> rotation;

  void list(BufferLister& l, const WholeMatrices& m) {
    for (int p = 0; p < m.buffers; ++p) {
      l.add(held[to_size(p)], "parts of matrices", m.held, 1);
      if (m.buffers > 1) l.add(received[to_size(p)], "parts of other ranks", m.received, 1);
    }
    l.add(x, "matrices", m.stack, 1);
    if (m.rotates) return rotation.list(l, m.rotation);
    l.add(y, "next matrices", m.stack, 1);
    l.add(gram, "squares of matrices", m.square, 1);
    l.add(polynomial, "polynomials of squares", m.square, 1);
    l.add(row_squares, "squares of rows", m.rows, 1);
    l.add(norms, "norms of matrices", m.batch, 1);
  }
};

}  // namespace forge
