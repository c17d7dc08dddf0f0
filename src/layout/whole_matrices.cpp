#include "layout/whole_matrices.hpp"

#include <algorithm>
#include <map>

#include "config/optimizer_table.hpp"
#include "layout/matrix_rounds.hpp"

namespace forge {

namespace {

// A matrix of a unit: what all ranks' pieces of this number are parts of.
struct Matrix {
  std::size_t unit, piece;
  std::size_t number;  // in LocalUnit::parameters
  const Parameter* parameter;
  const Split* split;  // null: every rank holds all of it
  std::int64_t first_row = 0, rows = 0, columns = 0;
  int owner = 0;
};

// Ranks that share matrices: shards, slowest, x `pieces` of tp or etp.
struct Sharers {
  int shards = 1, pieces = 1, rank = 0;
  bool cuts = false;  // whether a shard is a part of the elements, not a copy

  int size() const { return shards * pieces; }
};

std::vector<Matrix> matrices_of(const LocalUnit& unit, std::size_t number) {
  std::vector<Matrix> list;
  std::size_t split = 0;
  for (std::size_t p = 0; p < unit.pieces.size(); ++p) {
    const LocalPiece& piece = unit.pieces[p];
    const Parameter& parameter = unit.parameters[piece.parameter];
    split = p > 0 && unit.pieces[p - 1].parameter == piece.parameter ? split + 1 : 0;
    if (!unit.rule_of(p).whole) continue;
    Matrix m{number, p, piece.parameter, &parameter, parameter.split.empty() ? nullptr : &parameter.split[split]};
    m.rows = parameter.shape[0];
    m.columns = parameter.shape[1];
    if (parameter.split.size() > 1) {
      require(m.split->dim == 0, "a tensor of several matrices is split by rows");
      m.first_row = m.split->begin;
      m.rows = m.split->extent > 0 ? m.split->extent : m.rows - m.first_row;
    }
    list.push_back(m);
  }
  return list;
}

// What a rank of the sharers holds of a matrix.
struct Shard {
  Range elements;  // of the unit's flat buffer
  std::int64_t row = 0, column = 0, width = 0, first = 0;
  int source = 0;  // the rank that sends these elements to the owner
};

Shard shard_of(const Matrix& m, const LocalUnit& unit, const Sharers& group, int rank) {
  const int shard = rank / group.pieces, piece = rank % group.pieces;
  Shard s;
  std::int64_t rows = m.rows;
  s.width = m.columns;
  int copies = group.pieces;
  if (m.split) {
    const SplitPiece part = piece_of(*m.split, m.parameter->shape[to_size(m.split->dim)], group.pieces, piece);
    copies = part.copies;
    (m.split->dim == 0 ? s.row : s.column) = part.range.begin - (m.split->dim == 0 ? m.first_row : 0);
    (m.split->dim == 0 ? rows : s.width) = part.range.size();
  }
  const std::int64_t begin = unit.pieces[m.piece].offset, shard_size = unit.elements / group.shards;
  const Range here = group.cuts ? Range{shard_size * shard, shard_size * (shard + 1)} : Range{0, unit.elements};
  s.elements = intersection({begin, begin + rows * s.width}, here);
  if (s.elements.empty()) s.elements = {begin, begin};
  s.first = s.elements.begin - begin;
  // Of copies the owner's own, else those of the first rank that has them.
  const int owner_piece = m.owner % group.pieces, first = piece / copies * copies;
  const bool near = owner_piece >= first && owner_piece < first + copies;
  s.source = (group.cuts ? shard : m.owner / group.pieces) * group.pieces + (near ? owner_piece : first);
  return s;
}

// Calls f(rank, shard) of the ranks that hold elements of a matrix, in their order: of shards that are cut only few do.
template <class F>
void for_holders(const Matrix& m, const LocalUnit& unit, const Sharers& group, const F& f) {
  int first = 0, last = group.shards - 1;
  if (group.cuts) {
    const std::int64_t begin = unit.pieces[m.piece].offset, shard_size = unit.elements / group.shards;
    first = static_cast<int>(begin / shard_size);
    last = static_cast<int>(std::min<std::int64_t>(last, (begin + m.rows * m.columns - 1) / shard_size));
  }
  for (int rank = first * group.pieces; rank < (last + 1) * group.pieces; ++rank)
    if (const Shard shard = shard_of(m, unit, group, rank); !shard.elements.empty()) f(rank, shard);
}

// The rounds of one group of ranks.
class Rounds {
 public:
  Rounds(const std::vector<LocalUnit>& units, const Sharers& group, bool experts, const OptimizerDeck& deck,
         WholeMatrices& out)
      : units_(units), group_(group), experts_(experts), deck_(deck), out_(out) {}

  void add() {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Matrix>> shapes;
    for (std::size_t u = 0; u < units_.size(); ++u)
      if (units_[u].is_experts() == experts_)
        for (const Matrix& m : matrices_of(units_[u], u)) shapes[{m.rows, m.columns}].push_back(m);
    std::vector<std::vector<Matrix>> classes;
    for (auto& [shape, matrices] : shapes) classes.push_back(std::move(matrices));
    std::stable_sort(classes.begin(), classes.end(),
                     [&](const auto& a, const auto& b) { return flops(a[0]) > flops(b[0]); });
    std::vector<MatrixClass> work;
    for (const auto& c : classes) work.push_back({flops(c[0]), c[0].rows * c[0].columns, c.size()});
    const auto held = [&](std::size_t c, std::size_t i) { return held_of(classes[c][i]); };
    for (const auto& members : matrix_rounds(work, group_.size(), held)) {
      std::vector<Matrix> matrices;
      for (const RoundMember& member : members) {
        matrices.push_back(classes[member.shape][member.matrix]);
        matrices.back().owner = member.owner;
      }
      add_round(matrices);
    }
  }

 private:
  double flops(const Matrix& m) const {
    return out_.rotates ? rotated_flops(RotatedState(matrix_state(deck_, m.rows, m.columns)))
                        : newton_schulz_flops(m.rows, m.columns);
  }

  std::vector<PartOfRank> held_of(const Matrix& m) const {
    std::vector<PartOfRank> held;
    for_holders(m, units_[m.unit], group_, [&](int rank, const Shard& shard) {
      held.push_back({rank, shard.elements.size()});
    });
    return held;
  }

  // Matrices of a shape follow each other.
  void add_round(const std::vector<Matrix>& matrices) {
    MatrixRound round;
    round.experts = experts_;
    round.rank = group_.rank;
    std::vector<std::int64_t> held(to_size(group_.size()), 0), owned = held, stacked = held;
    std::int64_t sent = 0;
    const Matrix* before = nullptr;
    for (const Matrix& m : matrices) {
      const std::size_t owner = to_size(m.owner);
      if (!before || before->rows != m.rows || before->columns != m.columns)
        std::fill(stacked.begin(), stacked.end(), 0);
      before = &m;
      const std::int64_t elements = m.rows * m.columns, most = std::max<std::int64_t>(1, most_stacked / elements);
      const bool begins = stacked[owner] % most == 0;
      if (begins) stacked[owner] = 0;
      ++stacked[owner];
      owned[owner] += elements;
      measure(m, stacked[owner]);
      if (m.owner == group_.rank && begins) round.stacks.push_back(stack_of(m));
      add_parts(m, round, held, sent);
    }
    for (MatrixStack& stack : round.stacks) {
      stack.first_kept = out_.kept;
      out_.kept += stack.count() * stack.kept();
    }
    out_.held = std::max(out_.held, *std::max_element(held.begin(), held.end()));
    out_.received = std::max(out_.received, *std::max_element(owned.begin(), owned.end()));
    out_.rounds.push_back(std::move(round));
  }

  // An empty stack of matrices as large as this one.
  MatrixStack stack_of(const Matrix& m) const {
    MatrixStack stack;
    stack.rows = m.rows;
    stack.columns = m.columns;
    stack.state = matrix_state(deck_, m.rows, m.columns);
    stack.rotates = out_.rotates;
    return stack;
  }

  // What a stack of so many matrices needs.
  void measure(const Matrix& m, std::int64_t count) {
    const std::int64_t side = std::min(m.rows, m.columns);
    out_.stack = std::max(out_.stack, count * m.rows * m.columns);
    out_.square = std::max(out_.square, count * side * side);
    out_.rows = std::max(out_.rows, count * m.rows);
    out_.batch = std::max(out_.batch, count);
    if (!out_.rotates) return;
    out_.rotation.elements = std::max(out_.rotation.elements, m.rows * m.columns);
    out_.rotation.side = std::max(out_.rotation.side, RotatedState(matrix_state(deck_, m.rows, m.columns)).longest());
  }

  // What the ranks hold of a matrix: this rank's part of it, and, of its own matrices, everybody's.
  void add_parts(const Matrix& m, MatrixRound& round, std::vector<std::int64_t>& held, std::int64_t& sent) const {
    const LocalUnit& unit = units_[m.unit];
    std::vector<OwnedPart> parts;
    for_holders(m, unit, group_, [&](int r, const Shard& shard) {
      const std::int64_t n = shard.elements.size();
      std::int64_t& at = held[to_size(r)];
      if (r == group_.rank)
        round.held.push_back(
            {m.unit, shard.elements, unit.rule_of(m.piece), m.rows, m.columns, at, m.owner, shard.source == r});
      parts.push_back({0, r, shard.row, shard.column, shard.width, shard.first, n, shard.source == r,
                       shard.source == group_.rank, at});
      at += n;
    });
    if (m.owner != group_.rank) return;
    MatrixStack& stack = round.stacks.back();
    for (OwnedPart& part : parts) part.matrix = stack.count();
    place_sent(m, parts, sent);
    stack.matrices.push_back({m.unit, m.number, m.first_row});
    stack.parts.insert(stack.parts.end(), parts.begin(), parts.end());
  }

  // Places of a matrix's parts among those that the owner is sent; copies stand where their source's part stands.
  void place_sent(const Matrix& m, std::vector<OwnedPart>& parts, std::int64_t& sent) const {
    std::map<int, std::int64_t> places;  // by source
    for (const OwnedPart& part : parts) {
      if (!part.sent) continue;
      places[part.holder] = part.held ? part.at : sent;
      if (!part.held) sent += part.count;
    }
    for (OwnedPart& part : parts) part.at = places.at(shard_of(m, units_[m.unit], group_, part.holder).source);
  }

  const std::vector<LocalUnit>& units_;
  Sharers group_;
  bool experts_;
  const OptimizerDeck& deck_;
  WholeMatrices& out_;
};

void list_rotations(Segments& list, const RotatedState& s, std::int64_t matrices) {
  const std::int64_t m = s.rows, n = s.columns;
  const DType type = list.c.precision.accumulate;
  const auto add = [&](bool rotates, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    if (rotates) list.add(Product{rows, columns, inner, type, type});
  };
  for (std::int64_t i = 0; i < matrices; ++i) {
    add(s.rotates_rows, m, m, n);
    add(s.rotates_columns, n, n, m);
    for (int rotation = 0; rotation < 3; ++rotation) {
      add(s.rotates_rows, m, n, m);
      add(s.rotates_columns, m, n, n);
    }
  }
  list.over_rows("soap", matrices * m, n, 1, 1, 8, 6);
  if (s.rotates_rows) list.over_rows("soap", matrices * m, m, 0, 0, 2, 1);
  if (s.rotates_columns) list.over_rows("soap", matrices * n, n, 0, 0, 2, 1);
}

void list_stack(Segments& list, const MatrixStack& stack) {
  const std::int64_t B = stack.count(), m = stack.rows, n = stack.columns, k = std::min(m, n);
  if (stack.rotates) return list_rotations(list, RotatedState(stack.state), B);
  const DType type = list.c.precision.compute;
  const auto add = [&](bool sums, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    if (B > 1)
      list.add(ExpertProduct{sums, B, B * rows, columns, inner, type, type});
    else if (sums)
      list.add(Product{columns, inner, rows, type, type});
    else
      list.add(Product{rows, columns, inner, type, type});
  };
  for (int step = 0; step < newton_schulz_steps; ++step) {
    m <= n ? add(false, m, m, n) : add(true, m, n, n);
    add(false, k, k, k);
    m <= n ? add(false, m, n, m) : add(false, m, n, n);
  }
  list.over_rows("newton_schulz", B * m, n, 2 + newton_schulz_steps, 2 + newton_schulz_steps);
  list.over_rows("newton_schulz", B * k, k, newton_schulz_steps, newton_schulz_steps);
  if (stack.kept() > 0) list.over_rows("normuon", B * m, n, 2, 1);
}

}  // namespace

WholeMatrices whole_matrices(const std::vector<LocalUnit>& units, const LocalLayout& layout,
                             const OptimizerDeck& deck) {
  WholeMatrices all;
  all.rotates = row_of(deck.name).rotates();
  const auto sharers = [](const Zero& zero, int pieces, int piece) {
    return Sharers{zero.shards, pieces, zero.shard * pieces + piece, zero.shards_state()};
  };
  const Sharers dense = sharers(layout.zero, layout.tp, layout.tp_rank),
                experts = sharers(layout.expert_zero, layout.etp, layout.etp_rank);
  Rounds(units, dense, false, deck, all).add();
  Rounds(units, experts, true, deck, all).add();
  if (dense.size() > 1 || experts.size() > 1) all.buffers = 3;
  return all;
}

// X Xᵀ or XᵀX, its square, and their polynomial times X.
double newton_schulz_flops(std::int64_t rows, std::int64_t columns) {
  const auto least = static_cast<double>(std::min(rows, columns)), most = static_cast<double>(std::max(rows, columns));
  return newton_schulz_steps * (2 * least * least * most + 2 * least * least * least + 2 * least * least * most);
}

double rotated_flops(const RotatedState& s) {
  const auto m = static_cast<double>(s.rows), n = static_cast<double>(s.columns);
  return 4 * 2 * m * n * ((s.rotates_rows ? m : 0) + (s.rotates_columns ? n : 0));
}

void list_round(Segments& list, const MatrixRound& round) {
  for (const MatrixStack& stack : round.stacks) list_stack(list, stack);
}

}  // namespace forge
