#!/usr/bin/env bash
# jobscripts/prepare_quickstart.sh [DIRECTORY]: makes DIRECTORY/train.bin and validation.bin (default data/quickstart),
# byte tokens of the GNU Collaborative International Dictionary of English (Webster's of 1913 and additions, 40 MB of
# plain text) from the Debian and Ubuntu package dict-gcide. Every 100th entry is held out for validation. The same
# package gives the same bytes. Does nothing when both files are there.
#
# FORGE names the forge program (default: this tree's, or the one on the PATH). GCIDE may name a gcide.dict.dz that was fetched
# by hand, where there is no apt-get.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
directory=${1:-data/quickstart}

if [ -f "$directory/train.bin" ] && [ -f "$directory/validation.bin" ]; then
  exit 0
fi
. "$root/jobscripts/job.sh"
forge=$(find_forge cpu)
mkdir -p "$directory"
work=$(mktemp -d "$directory/partial.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The package is downloaded and unpacked here, not installed; apt-get checks its signature.
fetch() {
  if [ -f /usr/share/dictd/gcide.dict.dz ]; then
    echo /usr/share/dictd/gcide.dict.dz
    return
  fi
  command -v apt-get > /dev/null || {
    echo "prepare_quickstart: no apt-get here; fetch Debian's package dict-gcide and set GCIDE to its gcide.dict.dz" >&2
    exit 2
  }
  cd "$work"
  local options=(-qq -o Acquire::Retries=3)
  if [ "$(id -u)" -eq 0 ]; then
    options+=(-o APT::Sandbox::User=root)
    # A fresh machine has no package lists yet.
    apt-cache show dict-gcide > /dev/null 2>&1 || apt-get "${options[@]}" update >&2
  fi
  apt-get "${options[@]}" download dict-gcide >&2 || {
    echo "prepare_quickstart: the package dict-gcide could not be downloaded" >&2
    exit 5
  }
  dpkg-deb --fsys-tarfile dict-gcide_*.deb | tar -x ./usr/share/dictd/gcide.dict.dz
  echo "$work/usr/share/dictd/gcide.dict.dz"
}

work=$(cd "$work" && pwd)
source=${GCIDE:-$(fetch)}

# What stands before the first headword describes the database. An entry starts with a line that isn't indented, behind
# an empty one. A handful of bytes are not ASCII; they are left out.
gzip -dc < "$source" | tr -cd '\n -~' | awk -v train="$work/train.txt" -v validation="$work/validation.txt" '
  !started { started = /^[^ ].*\\.*\\/; empty = 1 }
  !started { next }
  empty && /^[^ ]/ { ++entries }
  { print > (entries % 100 == 50 ? validation : train); empty = ($0 == "") }
  END { exit entries < 100000 }' || {
  echo "prepare_quickstart: $source is not the dictionary that this script knows" >&2
  exit 2
}
for part in validation train; do
  "$forge" tokenize "$work/$part.txt" --output "$directory/$part.bin"
done
