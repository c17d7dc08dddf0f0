#!/usr/bin/env bash
# tests/format.sh [--fix]: every source file is as clang-format writes it. Releases of clang-format differ in what they
# write, so one is used. Ends with 77, which CTest shows as skipped, where it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
release=14

formatter=""
for name in "clang-format-$release" clang-format; do
  if "$name" --version 2> /dev/null | grep -q "version $release\."; then
    formatter=$name
    break
  fi
done
if [ -z "$formatter" ]; then
  echo "SKIPPED: the format is NOT checked: no clang-format $release here (Debian, Ubuntu: package clang-format-$release)"
  exit 77
fi

mapfile -t files < <(find src tests -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort)
if [ "${1:-}" = --fix ]; then
  "$formatter" -i "${files[@]}"
else
  bad=()
  for file in "${files[@]}"; do
    "$formatter" --dry-run -Werror "$file" > /dev/null 2>&1 || bad+=("$file")
  done
  if [ "${#bad[@]}" -gt 0 ]; then
    printf '%s: is not as %s writes it\n' "${bad[0]}" "$formatter"
    [ "${#bad[@]}" -eq 1 ] || printf '%s: too\n' "${bad[@]:1}"
    echo "format: tests/format.sh --fix rewrites them"
    exit 1
  fi
  echo "format: ${#files[@]} files are as $formatter writes them"
fi
