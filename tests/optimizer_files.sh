#!/bin/bash
# Which files of src/ an optimizer is in, from git, as a table: those whose code names it (the enumerator or the deck's word, or the
# file of its own in optim/), and how many files of src/ the commit changed that brought that file.
#   tests/optimizer_files.sh [COMMIT]
set -eu
cd "$(dirname "$0")/.."
commit=${1:-HEAD}
words=$(git show "$commit:src/config/optimizer_table.hpp" | tr -d '\n' | grep -oE '(OptimizerRow\{ *|\.word = )"[a-z_]+"' | cut -d'"' -f2)
echo '| optimizer | files that name it | first commit, and the files of src/ that it changed |'
echo '|---|---|---|'
for word in $words; do
  own="src/optim/$word.cpp"
  files=$( (git grep -lE "OptimizerName::$word\b|\"$word\"" "$commit" -- src | cut -d: -f2; echo "$own") | sort -u)
  first=$(git log --diff-filter=A --format=%h "$commit" -- "$own" | tail -1)
  changed=$(git show --name-only --format= "$first" -- src | grep -vc CMakeLists.txt)
  count=$(echo "$files" | wc -l)
  echo "| \`$word\` | $count: $(echo "$files" | sed 's/^src\///' | paste -sd, | sed 's/,/, /g') | $first: $changed |"
done
