#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace forge {

// A set of ranks, kept as ranges: many in a row take no more memory than one.
class RankSet {
 public:
  // Ranks begin … end − 1.
  void add(int begin, int end);
  void add(int rank) { add(rank, rank + 1); }
  void add(const RankSet& other);

  bool contains(int rank) const;
  bool empty() const { return ranges_.empty(); }
  std::int64_t count() const;
  // Ranks of 0 … size − 1 that are not in it.
  RankSet others(int size) const;
  // The ranges by their first ranks, with the ends behind the last ones.
  const std::map<int, int>& ranges() const { return ranges_; }

  // "0 to 2, 5", for people.
  std::string text() const;
  // "0-2,5", and back from there.
  std::string code() const;
  static RankSet from_code(const std::string& code);

  bool operator==(const RankSet&) const = default;

 private:
  std::map<int, int> ranges_;  // disjoint, and not even neighbours
};

}  // namespace forge
