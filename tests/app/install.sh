#!/usr/bin/env bash
# install.sh FORGE: what `cmake --install` makes works where it is put: the program, the decks, the job scripts, and the environment module
# under Environment Modules.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"
build=$(dirname "$forge")
expect 0 "Install" cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix" # it may be anywhere
share=$work/prefix/share/forge

# All of it, and nothing else.
(cd "$work/prefix" && find . -type f | sort) > "$work/found"
{
  { git ls-files inputs docs jobscripts README.md 2> /dev/null || true; } | { grep -v '\.in$' || true; } | sed 's#^#./share/forge/#'
  echo ./bin/forge
  echo "./share/modulefiles/forge/$("$forge" version | sed -n 's/^forge \([^,]*\),.*/\1/p')"
} | sort > "$work/expected"
if git rev-parse HEAD > /dev/null 2>&1; then
  cmp -s "$work/found" "$work/expected" || fail "installed is something else: $(diff "$work/expected" "$work/found")"
else
  [ "$(grep -c 'inputs/.*yaml$' "$work/found")" -ge 60 ] || fail "the decks are not installed"
fi
expect 0 "forge " "$work/prefix/bin/forge" version
for script in local.sh slurm_gpu.sh slurm_cpu.sh slurm_container.sh sweep.py; do
  [ -x "$share/jobscripts/$script" ] || fail "$script can't be started"
done

# The script for one machine trains without sources: with the program that was installed, in the directory where it is called.
cat docs/*.md > "$work/text"
"$forge" tokenize "$work/text" --output "$work/tokens.bin" > /dev/null
mkdir "$work/place"
cd "$work/place"
expect 0 "saved step_00000002" "$share/jobscripts/local.sh" "$share/inputs/debug.yaml" --set "data.files=[$work/tokens.bin]" \
  --set model.layers=1 --set model.width=32 --set model.ffn=48 --set model.vocabulary=257 --set train.sequence_tokens=32 --set train.steps=2 \
  --set optimizer.warmup_steps=1
[ -d checkpoints/debug/step_00000002 ] && [ -s runs/debug/metrics.jsonl ] || fail "no run in the working directory: $(ls -R)"

# The module: forge is found by PATH, its decks by FORGE_ROOT.
init=/usr/share/modules/init/bash
if [ ! -e "$init" ]; then
  [ "$failures" -eq 0 ] || exit 1
  echo "SKIPPED: Environment Modules are not installed (jobscripts/setup.sh --tests): the module file was not loaded"
  exit 77
fi
loaded() { bash -c '. "$0" && module use "$1" && module load forge && shift && "$@"' "$init" "$work/prefix/share/modulefiles" "$@"; }
expect 0 "$work/prefix/bin/forge" loaded sh -c 'command -v forge'
expect 0 "mesh of 32 ranks" loaded sh -c 'forge show --all "$FORGE_ROOT/inputs/moe_32gpu.yaml"'
expect 0 "trains transformer" loaded module whatis forge
finish
