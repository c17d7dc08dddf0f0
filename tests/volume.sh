# How much of their volume scripts take: sourced by them.

# Whether all of a script's volume is wanted, not a part of each kind, as tests/run.sh --long sets it.
is_long() { [ "${FORGE_LONG:-0}" = 1 ]; }
# Whether a third of the volume is wanted (docs/developer.md).
is_third() { [ "${FORGE_VOLUME:-}" = third ] && ! is_long; }
# A number below $1, by the commit's hash; 0 of sources without a repository.
draw_below() { echo $((16#$(git rev-parse --short=4 HEAD 2> /dev/null || echo 0) % $1)); }
