#!/usr/bin/env bash
# hardened.sh FORGE: what the linker resolves is read-only, the stack holds no code, and libraries are taken from no directory that others
# may write to: read from the binary, and tried with libraries in the working directory.
set -euo pipefail
forge=$(readlink -f "$1")
. "$(dirname "$0")/expect.sh"

dynamic=$(readelf -dW "$forge")
path=$(sed -nE 's/.*\((RUNPATH|RPATH)\).*\[(.*)\]$/\2/p' <<< "$dynamic")
case ":$path:" in
  :: | *::*) [ -z "$path" ] || fail "an empty element in the list of folders of libraries: $path" ;;
esac
while read -r folder; do
  [[ -z $folder || $folder == /* || $folder == '$ORIGIN'* ]] || fail "a folder of libraries by its relative path: $folder"
done < <(tr ':' '\n' <<< "$path")
grep -q 'BIND_NOW\|FLAGS.*NOW' <<< "$dynamic" || fail "what the linker resolves stays writable (-z now)"
readelf -lW "$forge" | grep -q GNU_RELRO || fail "no GNU_RELRO (-z relro)"
readelf -lW "$forge" | grep GNU_STACK | grep -q 'RWE' && fail "the stack is executable (-z noexecstack)"
readelf -hW "$forge" | grep -q 'DYN' || fail "not position independent (-pie)"
symbols=$(readelf --dyn-syms -W "$forge")
grep -q ' __stack_chk_fail' <<< "$symbols" || fail "no stack protector (-fstack-protector-strong)"
[ "$(grep -cE ' __[a-z]+_chk(@|$)' <<< "$symbols")" -ge 3 ] || fail "buffers of known size aren't checked (_FORTIFY_SOURCE)"

# A library of each name that the program asks for, which says so when it is loaded.
mkdir "$work/planted"
echo '#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { if (write(2, "PLANTED\n", 8) < 0) _exit(9); }' > "$work/planted.c"
cc -shared -fPIC -o "$work/planted.so" "$work/planted.c"
count=0
while read -r name; do
  cp "$work/planted.so" "$work/planted/$name"
  count=$((count + 1))
done < <(sed -nE 's/.*\(NEEDED\).*\[(.*)\]$/\1/p' <<< "$dynamic"; ldd "$forge" | awk '$2 == "=>" { print $1 }')
[ $count -ge 20 ] || fail "the program needs only $count libraries"
cd "$work/planted"
"$forge" version > "$work/output" 2>&1 || fail "the program doesn't start beside planted libraries: $(head -n 3 "$work/output")"
! grep -q PLANTED "$work/output" || fail "libraries of the working directory are loaded"
finish
