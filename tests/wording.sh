#!/usr/bin/env bash
# tests/wording.sh [--list NAME | --write]: counts phrases that hide the subject or object of a sentence ("what the tests run", "the same of",
# "of that", "that of", "outlives") in README.md, docs/*.md, docs/notes/*.md, the texts of keys and options (help), those
# of other sources (messages) and comments of headers (headers). Code
# blocks, words in backquotes and targets of links don't count. The table below has the numbers of files and groups, of others it is 0; a
# higher number fails, and so does a lower one until the table has it: numbers only fall. --list prints the lines of a file or group,
# --write lowers the table.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

table() {
  cat <<'END'
94 headers
6 messages
END
}

# Names, a tab, and how often each has the phrases: of Markdown by file, of C++ by group. With LIST the lines instead.
count() {
  awk -v list="${1:-}" '
    BEGIN { phrases = split("what|the same of|of that|that of|outlives|outlive", phrase, "|") }
    function name_of(file) {
      return file ~ /[.]md$/ ? file : file ~ /[.]hpp$/ ? "headers" : file ~ /\/(keys[a-z_]*|verb_help|verb_options)[.]cpp$/ ? "help" : "messages"
    }
    # The words of a text, a slash between sentences, two spaces on either side of each.
    function words(text) {
      text = tolower(text)
      gsub(/[.;:?!|]+/, " / ", text)
      gsub(/[^a-z0-9\/]+/, "  ", text)
      return "  " text "  "
    }
    function found(text,  i, n, pattern) {
      text = words(text)
      for (i = 1; i <= phrases; ++i) {
        pattern = " " phrase[i] " "
        gsub(/ /, "  ", pattern)
        n += gsub(pattern, "  ", text)
      }
      return n
    }
    function bare(text) {
      gsub(/`[^`]*`/, " x ", text)
      gsub(/\]\([^)]*\)/, "] ", text)
      return text
    }
    function close_text() {
      number[name] += found(bare(text))
      text = last = ""
    }
    function add(piece) {
      text = text " " piece
      if (list == name) {  # a phrase may begin on the line before
        piece = bare(piece)
        if (found(last " " piece) > found(last)) print FILENAME ":" FNR ": " $0
        last = piece
      }
    }
    FNR == 1 {
      if (name) close_text()
      name = name_of(FILENAME)
      fence = 0
    }
    name ~ /md$/ {
      if (/^```/) fence = !fence
      else if (!fence && !/^    /) add($0)
      next
    }
    name == "headers" {
      at = index($0, "//")
      if (at) add(substr($0, at + 2)); else text = text " / "
      next
    }
    {  # texts between quotation marks
      rest = $0
      piece = ""
      while (match(rest, /"([^"\\]|\\.)*"/)) {
        piece = piece " x " substr(rest, RSTART + 1, RLENGTH - 2)
        rest = substr(rest, RSTART + RLENGTH)
      }
      if (piece != "") add(piece)
    }
    END {
      close_text()
      if (!list) for (name in number) print name "\t" number[name]
    }
  ' README.md docs/*.md docs/notes/*.md src/config/keys*.cpp src/app/verb_help.cpp src/app/verb_options.cpp \
    $(find src -name '*.cpp' ! -path 'src/config/keys*' ! -name 'verb_help.cpp' ! -name 'verb_options.cpp' | sort) $(find src -name '*.hpp' | sort)
}

number=$(count)
case ${1:-} in
  --list)
    count "${2:?a file of docs/, README.md, help or headers}"
    exit
    ;;
  --write)
    lower=$(awk 'table { allowed[$2] = $1; next } ($1 in allowed) && $2 > 0 { print ($2 < allowed[$1] ? $2 : allowed[$1]), $1 }' \
      table=1 <(table) table=0 - <<< "$number" | sort -k2)
    text=$(awk -v lower="$lower" '/^END$/ { inside = 0 } !inside { print } /<<.END.$/ { print lower; inside = 1 }' "$0")
    printf '%s\n' "$text" > "$0"
    exit
    ;;
esac

awk '
  table { allowed[$2] = $1; next }
  {
    seen[$1]
    if ($2 > allowed[$1] + 0) {
      print "wording: " $1 " has " $2 " of the phrases, not " allowed[$1] + 0 ": tests/wording.sh --list " $1
      bad = 1
    } else if ($2 < allowed[$1]) {
      print "wording: " $1 " has " $2 " of the phrases, not " allowed[$1] " any more: lower its number (tests/wording.sh --write)"
      bad = 1
    }
    sum += $2
    ++names
  }
  END {
    for (name in allowed) if (!(name in seen)) { print "wording: " name " is in the table only"; bad = 1 }
    if (names < 20) { print "wording: only " names " texts"; bad = 1 }
    if (!bad) print "wording: " names " texts, " sum " phrases as the table has them"
    exit bad
  }
' table=1 <(table) table=0 - <<< "$number"
