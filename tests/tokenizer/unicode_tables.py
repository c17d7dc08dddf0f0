#!/usr/bin/env python3
"""tests/tokenizer/unicode_tables.py > src/tokenizer/unicode_tables.cpp (pip install tokenizers; Python 3.11, whose tables are those of
Unicode 14): where the library tokenizers takes characters for something else than Unicode 14 does. Its pattern engine is newer, its
tables of punctuation, marks and normal forms are older."""
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
CODES = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
HAN = [(0x2ebf0, 0x2ee5d), (0x31350, 0x323af)]  # Lo of later versions that are Han


def old(code):
    return unicodedata.category(chr(code))


def ranges(codes, key=lambda code: 0):
    out = []
    for c in sorted(codes):
        if out and out[-1][1] == c - 1 and out[-1][2] == key(c):
            out[-1][1] = c
        else:
            out.append([c, c, key(c)])
    return out


def members(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(c) for piece, _ in split.pre_tokenize_str("".join(map(chr, CODES))) for c in piece}


def stand_in(category, length, han):
    """A character of Unicode 14 of that category and length in UTF-8."""
    if han:
        return 0x20000
    for c in CODES:
        if old(c) == category and len(chr(c).encode()) == length and chr(c).lower() == chr(c).upper() == chr(c):
            return c
    return next(c for c in CODES if old(c) == category and len(chr(c).encode()) == length)


def table(name, rows, comment, three=False):
    print(f"// {comment}")
    print(f"constexpr {'StandIn' if three else 'CodeRange'} {name}[] = {{")
    cells = [("{0x%X, 0x%X, 0x%X}" % tuple(r)) if three else "{0x%X, 0x%X}" % (r[0], r[1]) for r in rows]
    line = "   "
    for cell in cells:
        if len(line) + len(cell) > 116:
            print(line)
            line = "   "
        line += " " + cell + ","
    print(line)
    print("};\n")


def main():
    new = {}
    for category in CATEGORIES:
        for c in members(r"\p{%s}+" % category):
            new[c] = category
    changed = [c for c in CODES if new.get(c, "Cn") != old(c) and c in new]
    length = lambda c: len(chr(c).encode())
    han = lambda c: any(a <= c <= b for a, b in HAN)
    stand_ins = [[a, b, stand_in(k[0], k[1], k[2])] for a, b, k in ranges(changed, lambda c: (new[c], length(c), han(c)))]

    text = "a".join(map(chr, CODES))
    punctuation = {ord(p) for p, _ in pre_tokenizers.Punctuation("isolated").pre_tokenize_str(text) if len(p) == 1 and p != "a"}
    no_punctuation = [c for c in CODES if c >= 128 and old(c)[0] == "P" and c not in punctuation]
    more_punctuation = [c for c in CODES if c >= 128 and old(c)[0] != "P" and c in punctuation]
    strip = normalizers.StripAccents()
    no_mark = [c for c in CODES if old(c)[0] == "M" and strip.normalize_str(chr(c)) != ""]
    more_marks = [c for c in CODES if old(c)[0] != "M" and strip.normalize_str(chr(c)) == ""]
    bert = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    no_nonspacing = [c for c in CODES if old(c) == "Mn" and bert.normalize_str(chr(c)) != ""]
    more_nonspacing = [c for c in CODES if old(c) != "Mn" and bert.normalize_str(chr(c)) == ""]
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    no_control = [c for c in CODES if old(c) in ("Cc", "Cf", "Co") and c not in (9, 10, 13) and clean.normalize_str(chr(c)) == chr(c)]
    inert = set()
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        normalizer = getattr(normalizers, form)()
        inert |= {c for c in CODES if normalizer.normalize_str(chr(c)) != unicodedata.normalize(form, chr(c))}
    nfd = normalizers.NFD()
    for c in CODES:
        if old(c)[0] == "M" or new.get(c, "Cn")[0] == "M":
            for mark in "\u0334\u0327\u0323\u0301\u302a\u3099\u0345":
                for t in ("a" + chr(c) + mark, "a" + mark + chr(c)):
                    if nfd.normalize_str(t) != unicodedata.normalize("NFD", t):
                        inert.add(c)
    lower = normalizers.Lowercase()
    lowercase = [[c, c, ord(lower.normalize_str(chr(c)))] for c in CODES if lower.normalize_str(chr(c)) != chr(c).lower()]

    print("// Written by tests/tokenizer/unicode_tables.py.")
    print('#include "tokenizer/unicode_tables.hpp"\n\n#include <algorithm>\n#include <iterator>\n\nnamespace forge {\n\nnamespace {\n')
    table("stand_ins", stand_ins, "Characters of later versions, and one of Unicode 14 with the same category and length in UTF-8 for each.", True)
    table("lowercase", lowercase, "Lower case letters of later versions.", True)
    table("not_punctuation", ranges(no_punctuation), "P* of Unicode 14, but not of the older table.")
    table("more_punctuation", ranges(more_punctuation), "Only of the older table.")
    table("not_marks", ranges(no_mark), "M* of Unicode 14, but not of the older table.")
    table("more_marks", ranges(more_marks), "Only of the older table.")
    table("not_nonspacing", ranges(no_nonspacing), "Mn of Unicode 14, but not of the older table.")
    table("more_nonspacing", ranges(more_nonspacing), "Only of the older table.")
    table("not_control", ranges(no_control), "C* of Unicode 14, but not of the older table.")
    table("no_forms", ranges(inert), "Characters whose decomposition or combining class is younger than the table of normal forms.")
    print("""template <class Row, std::size_t n>
const Row* find(const Row (&rows)[n], char32_t code) {
  const Row* row = std::upper_bound(std::begin(rows), std::end(rows), code, [](char32_t c, const Row& r) { return c < r.first; });
  return row != std::begin(rows) && code <= row[-1].last ? row - 1 : nullptr;
}

}  // namespace
""")
    print("""char32_t stand_in(char32_t code) {
  const StandIn* row = find(stand_ins, code);
  return row ? row->other : 0;
}
char32_t later_lowercase(char32_t code) {
  const StandIn* row = find(lowercase, code);
  return row ? row->other : 0;
}""")
    for name, no, more in (("punctuation", "not_punctuation", "more_punctuation"), ("mark", "not_marks", "more_marks"),
                           ("nonspacing_mark", "not_nonspacing", "more_nonspacing")):
        print(f"bool library_{name}(char32_t code, bool unicode_14) {{")
        print(f"  return unicode_14 ? find({no}, code) == nullptr : find({more}, code) != nullptr;\n}}")
    print("bool library_control(char32_t code, bool unicode_14) {\n  return unicode_14 && find(not_control, code) == nullptr;\n}")
    print("bool has_no_form(char32_t code) {\n  return find(no_forms, code) != nullptr;\n}\n")
    print("}  // namespace forge")


if __name__ == "__main__":
    sys.exit(main())
