#!/usr/bin/env bash
# tests/mutations/drawn.sh BUILD [FOLDER NUMBER]: plants so many mistakes of a folder beside this file (default: one of those
# here), drawn by the commit's hash, in a copy of this build, whose own tests CTest runs; with FORGE_LONG=1 all of them. See run.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=${2:-.} number=${3:-1}
mutations=("$here/$folder"/*.mutation)
names=()
name() { for mutation in "$@"; do names+=("$folder/$(basename "$mutation" .mutation)"); done; }
if [ "${FORGE_LONG:-}" = 1 ]; then
  name "${mutations[@]}"
  exec "$here/run.sh" --build "$1" "${names[@]}"
fi
# In the place of a third of these mistakes a worked example is tried, which takes as long (tests/extending/run.sh).
. "$root/tests/volume.sh"
if [ "$folder" = . ] && is_third && [ "$(draw_below 3)" -eq 0 ]; then
  echo "this commit draws a worked example"
  exit 0
fi
# Sources without a repository are drawn by what they are.
key=$(git -C "$root" rev-parse HEAD 2> /dev/null || cat "$root"/src/*/*.cpp | sha256sum)
mapfile -t drawn < <(python3 "$here/mutate.py" draw "$key" "$number" "${mutations[@]}")
[ "${#drawn[@]}" -eq "$number" ] || { echo "$number mistakes are drawn, not ${#drawn[@]}"; exit 1; }
name "${drawn[@]}"
echo "drawn: ${names[*]}"
"$here/run.sh" --build "$1" --made "${names[@]}"
