# Helpers of scripts that try many cases: source it behind expect.sh. FORGE_LONG=1 tries all of them; otherwise some, drawn by the
# commit, so that over time all have their turn.
draw_seed=$(git rev-parse HEAD 2> /dev/null || date +%j)

# drawn NAME COUNT < CASES: so many of the lines, in their order; all with FORGE_LONG=1.
drawn() {
  if is_long; then
    cat
  else
    nl -ba | while read -r number line; do
      printf '%s %s %s\n' "$(printf '%s %s %s' "$draw_seed" "$1" "$line" | cksum | cut -d' ' -f1)" "$number" "$line"
    done | sort -n | head -n "$2" | sort -n -k2 | cut -d' ' -f3-
  fi
}

# Seconds that cases took beyond what they had to. A machine under load starts a job a minute late now and then: of all cases half
# count; of few they are only told.
times=()
note_time() { times+=("$1"); }
check_times() { # MOST
  local sorted median
  mapfile -t sorted < <(printf '%s\n' "${times[@]}" | sort -n)
  median=${sorted[$(((${#sorted[@]} - 1) / 2))]}
  echo "${#sorted[@]} cases: median $median s, longest ${sorted[-1]} s, at most $1 s for half of them"
  ! is_long || [ "$median" -le "$1" ] || fail "the median case took $median s, not $1 s"
}
