#!/usr/bin/env python3
"""includes.py [--fix] [ROOT]: a source includes the standard headers of the names that it uses, itself or through headers of the
project. A standard header may include another one in one release of a compiler and not in the next: g++ 12's <string> has
<cstdint>, g++ 14's hasn't. Names that every container's header has by the standard or by custom (std::size_t, std::move, std::ssize)
are left out. Prints what is missing, one a line, and ends with 1 where there is something; --fix writes the includes.
"""
import pathlib
import re
import sys

FOLDERS, ENDINGS = ("src", "tests"), ("hpp", "cpp", "cu", "cuh", "h")
CALLS = {
    "algorithm": "sort stable_sort min max clamp minmax find find_if find_if_not find_first_of any_of all_of none_of count count_if copy"
    " copy_n copy_if fill fill_n transform for_each equal mismatch reverse rotate unique remove_if replace lower_bound"
    " upper_bound equal_range binary_search min_element max_element minmax_element nth_element partial_sort is_sorted generate shuffle"
    " set_difference set_intersection set_union includes partition stable_partition search adjacent_find next_permutation swap_ranges"
    " lexicographical_compare merge push_heap pop_heap make_heap is_permutation",
    "numeric": "accumulate iota partial_sum reduce inner_product gcd lcm exclusive_scan inclusive_scan adjacent_difference midpoint",
    "cmath": "sqrt exp exp2 expm1 log log2 log10 log1p pow fabs isnan isinf isfinite floor ceil round trunc lround llround tanh sin cos"
    " ldexp frexp nearbyint rint hypot erf cbrt fmod copysign signbit nextafter",
    "cstring": "memcpy memset memcmp memmove memchr strlen strcmp strncmp strerror strstr strchr strrchr",
    "cstdlib": "getenv atoi atof strtol strtoul strtoll strtoull strtod _Exit exit abort system malloc calloc realloc free",
    "cstdio": "printf fprintf snprintf sscanf fopen fflush fputs puts fwrite fread fclose perror rename",
    "cctype": "isalnum isdigit isspace isalpha tolower toupper isxdigit isprint ispunct",
    "csignal": "signal raise",
    "bit": "bit_cast popcount countr_zero countl_zero has_single_bit bit_ceil bit_floor bit_width",
    "charconv": "from_chars to_chars",
}
NAMES = {
    "array": "array", "atomic": "atomic", "bitset": "bitset", "chrono": "chrono", "complex": "complex",
    "condition_variable": "condition_variable", "cstdint": r"u?int(?:8|16|32|64|ptr|max)_t", "deque": "deque",
    "exception": "exception exception_ptr current_exception rethrow_exception terminate set_terminate uncaught_exceptions",
    "filesystem": "filesystem", "fstream": "fstream ifstream ofstream", "functional": "function ref cref plus multiplies less greater",
    "future": "future promise async", "iomanip": "setw setprecision setfill quoted", "iostream": "cout cerr cin", "limits": "numeric_limits",
    "list": "list", "map": "map multimap", "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared",
    "mutex": "mutex lock_guard unique_lock scoped_lock once_flag call_once", "new": "bad_alloc nothrow align_val_t set_new_handler",
    "optional": "optional nullopt", "queue": "queue priority_queue", "random": "mt19937 mt19937_64 random_device", "regex": "regex",
    "set": "set multiset", "source_location": "source_location", "span": "span as_bytes as_writable_bytes",
    "sstream": "stringstream istringstream ostringstream", "stdexcept": "runtime_error logic_error invalid_argument out_of_range",
    "string": "string to_string stoi stol stoll stoul stoull stod", "string_view": "string_view", "thread": "thread this_thread jthread",
    "tuple": "tuple tie make_tuple", "unordered_map": "unordered_map", "unordered_set": "unordered_set",
    "variant": "variant visit get_if holds_alternative monostate", "vector": "vector",
}
PATTERNS = {h: re.compile(rf"\bstd::(?:ranges::)?(?:{'|'.join(names.split())})\s*\(") for h, names in CALLS.items()}
PATTERNS |= {h: re.compile(rf"\bstd::(?:{'|'.join(names.split())})\b(?!\s*\.)") for h, names in NAMES.items()}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<(\w+)>|"([^"]+)")', re.M)


def code_of(text):
    """Without macros, which stand for code elsewhere, comments and the insides of strings."""
    text = re.sub(r"^[ \t]*#[ \t]*define(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*', '""', text)


class Sources:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        paths = [p for f in FOLDERS for e in ENDINGS for p in (self.root / f).rglob("*." + e)]
        self.text = {p: p.read_text() for p in sorted(paths)}
        self.known = {}

    def includes(self, path):
        """Standard headers and the project's own ones."""
        if path not in self.known:
            standard, own = set(), set()
            for header, name in INCLUDE.findall(self.text[path]):
                places = (path.parent, self.root / "src", self.root / "tests", self.root / "tests/vgpu/include")
                found = next((p / name for p in places if name and p / name in self.text), None)
                standard |= {header} - {""}
                own |= {found} - {None}
            self.known[path] = standard, own
        return self.known[path]

    def reached(self, path):
        """All standard headers that a file includes, through the project's headers too."""
        standard, seen, todo = set(), {path}, [path]
        while todo:
            here, own = self.includes(todo.pop())
            standard |= here
            todo += own - seen
            seen |= own
        return standard

    def missing(self):
        for path, text in self.text.items():
            code, reached = code_of(text), self.reached(path)
            for header, pattern in PATTERNS.items():
                use = header not in reached and pattern.search(code)
                if use:
                    yield path, header, use.group(0).rstrip("( ")


def add(path, header):
    """In the group of standard headers, where the formatter sorts it; else as a group behind the own header and those of C."""
    lines = path.read_text().split("\n")
    standard = [i for i, line in enumerate(lines) if re.match(r"#include <[a-z_]+>$", line)]
    if standard:
        lines.insert(standard[0], f"#include <{header}>")
    else:
        first = next(i for i, line in enumerate(lines) if line.startswith(("#include", "#pragma once")))
        before = [i for i, line in enumerate(lines) if re.match(r"#include <\S+[.]h>|#pragma once", line)]
        if lines[first].strip('"').endswith(f"{path.stem}.hpp"):
            before.append(first)
        at = max(before, default=first - 1) + 1
        lines[at:at] = ["", f"#include <{header}>"] if before else [f"#include <{header}>", ""]
    path.write_text("\n".join(lines))


def main(arguments):
    fix = arguments[:1] == ["--fix"]
    sources = Sources(arguments[-1] if len(arguments) > fix else pathlib.Path(__file__).parent.parent)
    found = list(sources.missing())
    for path, header, use in found:
        print(f"{path.relative_to(sources.root)}: uses {use} without <{header}>")
        if fix:
            add(path, header)
    if found:
        print("tests/includes.py --fix adds them, tests/format.sh --fix sorts them")
    else:
        print(f"{len(sources.text)} sources include the standard headers that they use")
    return not sources.text or bool(found) and not fix


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
