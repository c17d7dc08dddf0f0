#pragma once

#include <array>

namespace forge {

// The types of an exported directory's tensors. coded: the matrices of blocks and experts as 8-bit codes with scales,
// not embedding, head, norms, routers, gates and the input of multi-token layers, which have
// bf16: as DeepSeek-V3's files.
enum class ExportType { fp32, bf16, coded };
inline constexpr std::array export_type_words{"fp32", "bf16", "fp8"};  // of --type
inline constexpr const char* export_type_doc =
    "of the tensors (default fp32); fp8: of blocks' matrices, with block scales";

}  // namespace forge
