#!/usr/bin/env bash
# tests/format.sh [--fix]: every source file is as clang-format writes it. Releases of clang-format differ in what they
# write, so one is used. Ends with 77, which CTest shows as skipped, where it is missing; a system that has no such package, as Debian
# 13, leaves the test out and no machine's CI fails for it (tests/skipped.sh).
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
  kind="LEFT OUT"
  if apt-cache show "clang-format-$release" > /dev/null 2>&1; then kind=SKIPPED; fi
  echo "$kind: the format is NOT checked: no clang-format $release here (Debian 12, Ubuntu 24.04: package clang-format-$release)"
  exit 77
fi

mapfile -t files < <(find src tests -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort)
if [ "${1:-}" = --fix ]; then
  "$formatter" -i "${files[@]}"
else
  # Many files a process, of which most of the time would be starting it.
  if ! said=$(printf '%s\0' "${files[@]}" | xargs -0 -n 100 "$formatter" --dry-run -Werror 2>&1); then
    mapfile -t bad < <(sed -nE 's/^([^:]+):[0-9]+:[0-9]+: .*/\1/p' <<< "$said" | sort -u)
    [ "${#bad[@]}" -gt 0 ] || { printf '%s\n' "$said"; exit 1; }
    printf '%s: is not as %s writes it\n' "${bad[0]}" "$formatter"
    [ "${#bad[@]}" -eq 1 ] || printf '%s: too\n' "${bad[@]:1}"
    echo "format: tests/format.sh --fix rewrites them"
    exit 1
  fi
  echo "format: ${#files[@]} files are as $formatter writes them"
fi
