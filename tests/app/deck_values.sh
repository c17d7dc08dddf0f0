# What `forge show` prints of a deck, for the scripts beside this one: source it.

# value SHOWN SECTION KEY: of the resolved deck in the file SHOWN.
value() {
  awk -v section="$2:" -v key="  $3:" '/^[^ ]/ { inside = $0 == section } inside && index($0, key) == 1 { sub(/^ *[a-z_0-9]+: */, ""); print; exit }' "$1"
}

# mesh_column SHOWN COLUMN: of the mesh's table, pp to tp, with blanks between.
mesh_column() {
  awk -v column="$2" '/^mesh of / { inside = 1 } inside && $1 ~ /^(pp|dp_replicate|dp_shard|cp|tp)$/ && $2 ~ /^[0-9]+$/ { printf "%s%s", blank, $column; blank = " " } inside && $1 == "tp" { exit }' "$1"
}

# expert_line SHOWN NAME: of what is said of experts.
expert_line() {
  awk -v name="  $2 " '/^experts$/ { inside = 1; next } inside && index($0, name) == 1 { print substr($0, 20); exit } inside && /^$/ { exit }' "$1"
}
