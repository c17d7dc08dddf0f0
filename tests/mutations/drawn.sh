#!/usr/bin/env bash
# tests/mutations/drawn.sh BUILD: plants three mistakes, drawn by the commit's hash, in a copy of this build, whose own tests CTest
# runs; with FORGE_LONG=1 all of them. See run.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ "${FORGE_LONG:-}" = 1 ]; then
  exec "$here/run.sh" --build "$1"
fi
# Sources without a repository are drawn by what they are.
key=$(git -C "$root" rev-parse HEAD 2> /dev/null || cat "$root"/src/*/*.cpp | sha256sum)
mapfile -t drawn < <(python3 "$here/mutate.py" draw "$key" 3 "$here"/*.mutation)
[ "${#drawn[@]}" -eq 3 ] || { echo "three mistakes are drawn, not ${#drawn[@]}"; exit 1; }
names=()
for mutation in "${drawn[@]}"; do names+=("$(basename "$mutation" .mutation)"); done
echo "drawn: ${names[*]}"
"$here/run.sh" --build "$1" --made "${names[@]}"
