#include "layout/whole_matrices.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace forge {

namespace {

// Elements of an owner's matrices in a round, where one matrix isn't larger.
constexpr std::int64_t most_stacked = std::int64_t{1} << 24;
// Elements that a rank holds of a round, where one matrix isn't larger: a shard may have all of a shape's.
constexpr std::int64_t most_held = std::int64_t{1} << 26;

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
struct Share {
  Range elements;  // of the unit's flat buffer
  std::int64_t row = 0, column = 0, width = 0, first = 0;
  int source = 0;  // the rank that sends these elements to the owner
};

Share share_of(const Matrix& m, const LocalUnit& unit, const Sharers& group, int rank) {
  const int shard = rank / group.pieces, piece = rank % group.pieces;
  Share s;
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

// The rounds of one group of ranks.
class Rounds {
 public:
  Rounds(const std::vector<LocalUnit>& units, const Sharers& group, bool experts, WholeMatrices& out)
      : units_(units), group_(group), experts_(experts), out_(out) {}

  void add() {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Matrix>> shapes;
    for (std::size_t u = 0; u < units_.size(); ++u)
      if (units_[u].is_experts() == experts_)
        for (const Matrix& m : matrices_of(units_[u], u)) shapes[{m.rows, m.columns}].push_back(m);
    std::vector<std::vector<Matrix>> classes;
    for (auto& [shape, matrices] : shapes) classes.push_back(std::move(matrices));
    std::stable_sort(classes.begin(), classes.end(), [](const auto& a, const auto& b) {
      return newton_schulz_flops(a[0].rows, a[0].columns) > newton_schulz_flops(b[0].rows, b[0].columns);
    });
    std::vector<std::pair<double, std::int64_t>> work;
    for (const auto& c : classes) work.emplace_back(newton_schulz_flops(c[0].rows, c[0].columns), std::ssize(c));
    const auto owners = matrix_owners(work, group_.size());
    for (std::size_t c = 0; c < classes.size(); ++c) {
      for (std::size_t i = 0; i < classes[c].size(); ++i) classes[c][i].owner = owners[c][i];
      add_class(classes[c]);
    }
  }

 private:
  // A round that is filled, and what each rank owns and holds of it.
  struct OpenRound {
    std::vector<Matrix> matrices;
    std::vector<std::int64_t> owned, held;
  };

  // In each round an owner has the next of its matrices, as many as are stacked, and as many as their holders hold.
  void add_class(const std::vector<Matrix>& matrices) {
    const std::int64_t batch = std::max<std::int64_t>(1, most_stacked / (matrices[0].rows * matrices[0].columns));
    std::vector<std::size_t> next(to_size(group_.size()), 0);  // round, by owner
    std::vector<OpenRound> rounds;
    for (const Matrix& m : matrices) {
      const std::vector<std::int64_t> held = held_of(m);
      std::size_t& at = next[to_size(m.owner)];
      while (at < rounds.size() && !has_room(rounds[at], m.owner, batch, held)) ++at;
      if (at == rounds.size())
        rounds.push_back({{}, std::vector<std::int64_t>(held.size(), 0), std::vector<std::int64_t>(held.size(), 0)});
      OpenRound& round = rounds[at];
      round.matrices.push_back(m);
      ++round.owned[to_size(m.owner)];
      for (std::size_t r = 0; r < held.size(); ++r) round.held[r] += held[r];
    }
    for (const OpenRound& round : rounds) add_round(round.matrices);
  }

  // Elements of a matrix, by rank.
  std::vector<std::int64_t> held_of(const Matrix& m) const {
    std::vector<std::int64_t> held(to_size(group_.size()));
    for (int r = 0; r < group_.size(); ++r) held[to_size(r)] = share_of(m, units_[m.unit], group_, r).elements.size();
    return held;
  }

  static bool has_room(const OpenRound& round, int owner, std::int64_t batch, const std::vector<std::int64_t>& held) {
    if (round.owned[to_size(owner)] == batch) return false;
    for (std::size_t r = 0; r < held.size(); ++r)
      if (held[r] > 0 && round.held[r] > 0 && round.held[r] + held[r] > most_held) return false;
    return true;
  }

  void add_round(const std::vector<Matrix>& matrices) {
    MatrixRound round{experts_, group_.rank, matrices[0].rows, matrices[0].columns, {}, out_.owned_rows, {}, {}};
    std::vector<std::int64_t> held(to_size(group_.size()), 0), owned = held;
    std::int64_t sent = 0;
    for (const Matrix& m : matrices) {
      const LocalUnit& unit = units_[m.unit];
      const bool mine = m.owner == group_.rank;
      const std::size_t before = round.owned.size();
      for (int r = 0; r < group_.size(); ++r) {
        const Share share = share_of(m, unit, group_, r);
        const std::int64_t n = share.elements.size();
        if (n == 0) continue;
        std::int64_t& at = held[to_size(r)];
        if (r == group_.rank)
          round.held.push_back({m.unit, share.elements, unit.rule_of(m.piece), at, m.owner, share.source == r});
        if (mine)
          round.owned.push_back({owned[to_size(m.owner)], r, share.row, share.column, share.width, share.first, n,
                                 share.source == r, share.source == group_.rank, at});
        at += n;
      }
      if (mine) {
        round.matrices.push_back({m.unit, m.number, m.first_row});
        place_sent(m, round, before, sent);
      }
      ++owned[to_size(m.owner)];
    }
    out_.owned_rows += round.owned_matrices() * round.rows;
    const std::int64_t batch = *std::max_element(owned.begin(), owned.end()),
                       side = std::min(round.rows, round.columns);
    out_.held = std::max(out_.held, *std::max_element(held.begin(), held.end()));
    out_.stack = std::max(out_.stack, batch * round.rows * round.columns);
    out_.square = std::max(out_.square, batch * side * side);
    out_.rows = std::max(out_.rows, batch * round.rows);
    out_.batch = std::max(out_.batch, batch);
    out_.rounds.push_back(std::move(round));
  }

  // Places of the matrix's parts among those that the owner is sent; copies stand where their source's part stands.
  void place_sent(const Matrix& m, MatrixRound& round, std::size_t begin, std::int64_t& sent) const {
    std::map<int, std::int64_t> places;  // by source
    for (std::size_t i = begin; i < round.owned.size(); ++i) {
      const OwnedPart& part = round.owned[i];
      if (!part.sent) continue;
      places[part.holder] = part.held ? part.at : sent;
      if (!part.held) sent += part.count;
    }
    for (std::size_t i = begin; i < round.owned.size(); ++i) {
      OwnedPart& part = round.owned[i];
      part.at = places.at(share_of(m, units_[m.unit], group_, part.holder).source);
    }
  }

  const std::vector<LocalUnit>& units_;
  Sharers group_;
  bool experts_;
  WholeMatrices& out_;
};

}  // namespace

std::vector<std::vector<int>> matrix_owners(const std::vector<std::pair<double, std::int64_t>>& classes, int ranks) {
  std::vector<double> work(to_size(ranks), 0);
  std::vector<int> order(to_size(ranks));
  std::vector<std::vector<int>> owners;
  for (const auto& [flops, count] : classes) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return work[to_size(a)] < work[to_size(b)]; });
    owners.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      owners.back().push_back(order[to_size(i % ranks)]);
      work[to_size(owners.back().back())] += flops;
    }
  }
  return owners;
}

WholeMatrices whole_matrices(const std::vector<LocalUnit>& units, const LocalLayout& layout) {
  WholeMatrices all;
  const auto sharers = [](const Zero& zero, int pieces, int piece) {
    return Sharers{zero.shards, pieces, zero.shard * pieces + piece, zero.shards_state()};
  };
  const Sharers dense = sharers(layout.zero, layout.tp, layout.tp_rank),
                experts = sharers(layout.expert_zero, layout.etp, layout.etp_rank);
  Rounds(units, dense, false, all).add();
  Rounds(units, experts, true, all).add();
  if (dense.size() > 1 || experts.size() > 1) all.places = 3;
  return all;
}

// X Xᵀ or XᵀX, its square, and their polynomial times X.
double newton_schulz_flops(std::int64_t rows, std::int64_t columns) {
  const auto least = static_cast<double>(std::min(rows, columns)), most = static_cast<double>(std::max(rows, columns));
  return newton_schulz_steps * (2 * least * least * most + 2 * least * least * least + 2 * least * least * most);
}

void add_round_operations(Operations& o, const MatrixRound& round) {
  const std::int64_t B = round.owned_matrices(), m = round.rows, n = round.columns, k = std::min(m, n);
  if (B == 0) return;
  const DType type = o.c.precision.compute;
  const auto add = [&](bool sums, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    if (B == 1 && sums)
      o.products.push_back({columns, inner, rows, type, type, false});
    else if (B == 1)
      o.products.push_back({rows, columns, inner, type, type, false});
    else
      o.expert_products.push_back({sums, B, B * rows, columns, inner, type, type});
  };
  for (int step = 0; step < newton_schulz_steps; ++step) {
    m <= n ? add(false, m, m, n) : add(true, m, n, n);
    add(false, k, k, k);
    m <= n ? add(false, m, n, m) : add(false, m, n, n);
  }
  o.over_rows("newton_schulz", B * m, n, 2 + newton_schulz_steps, 2 + newton_schulz_steps);
  o.over_rows("newton_schulz", B * k, k, newton_schulz_steps, newton_schulz_steps);
  if (keeps_lines(o.c.optimizer)) o.over_rows("normuon", B * m, n, 2, 1);
}

}  // namespace forge
