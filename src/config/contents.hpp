#pragma once

#include <string>
#include <string_view>

namespace forge {

// The kind of a file by its first bytes, where it is neither text nor ids: "a Parquet file", "a Git LFS pointer …".
// "": not known. `head`: as many as there are, some hundred at least where the file has them. gzip and zstd are named
// too.
std::string known_contents(std::string_view head);

// Likewise, and a kind that no file of ids, a vocabulary or weights may be either: an HTML page.
std::string known_foreign_contents(std::string_view head);

// Text in another encoding than UTF-8, by its mark or by its zero bytes: "UTF-16 text", "UTF-32 text". "": none.
std::string wide_text(std::string_view head);

// Whether all of some bytes, of which the first and the last character may be cut, are characters of a text in UTF-8:
// no control character but those that stand in texts.
bool is_text(std::string_view bytes);

}  // namespace forge
