#pragma once

#include <vector>

#include "core/to_size.hpp"
#include "layout/local_units.hpp"
#include "model/buffers.hpp"

namespace forge {

// Second moments of matrices as a row's times a column's (Adafactor; Shazeer & Stern 2018, arXiv 1804.04235). Each
// tensor of a checkpoint with two dimensions is a matrix, each expert's for itself; others have second moments of their
// own. The ranks that share a unit (groups `matrices` and `expert_matrices`) add up squares, each of its own elements,
// and all keep the moments of its rows and columns.

// One of a unit's. The moments of its rows begin at `moments` of the unit's, the moments of its columns follow them.
struct FactoredTensor {
  std::size_t parameter = 0;           // in LocalUnit::parameters
  std::int64_t rows = 0, columns = 0;  // 0: a vector
  std::int64_t elements = 0;
  std::int64_t moments = 0;

  bool is_matrix() const { return rows > 0; }
};

// Rows of a tensor, or a part of one, that stand one behind the other in the unit's flat buffer, without a gap.
struct FactoredPart {
  std::size_t tensor = 0;
  std::int64_t row = 0, column = 0, rows = 1, columns = 0;
  std::int64_t at = 0;  // of the first element in the unit's flat buffer
};

struct FactoredUnit {
  std::vector<FactoredTensor> tensors;
  std::vector<FactoredPart> counted, held;  // parts that this rank adds to the sums, and that it updates
  std::int64_t moments = 0;                 // of all its tensors' rows and columns
  std::int64_t first_moment = 0;            // where they stand among all moments of the rank's units
  bool writes = false;                      // this rank writes them to checkpoints

  std::int64_t tensor_count() const { return std::ssize(tensors); }
};

// All units of a rank.
struct FactoredMoments {
  std::vector<FactoredUnit> units;
  std::int64_t moments = 0;
};
FactoredMoments factored_moments(const std::vector<LocalUnit>& units, const LocalLayout& layout);

// Second moments of rows, and of columns, that a rank keeps for the whole run: of matrices that it owns
// (WholeMatrices::kept), or of all matrices whose parts it holds; with SOAP, all states of its own matrices.
template <class A>
struct LineMoments {
  View<A, 1> values;

  void list(BufferLister& l, const std::int64_t& count) { l.add(values, "state of matrices", count, 1); }
};

// Memory of a unit's update, a frame of the workspace.
struct FactoredBuffers {
  View<double, 1> sums;           // squares of gradients by row and by column, then of the weights by tensor
  View<double, 1> updates;        // squares of updates by tensor
  View<double, 1> means;          // of the rows' moments, by tensor
  View<double, 1> rows, squares;  // partial sums: of a part's rows; of a stretch of weights
  View<double, 2> columns;        // partial sums of a part's columns

  void list(BufferLister& l, const FactoredUnit& unit);
};

}  // namespace forge
