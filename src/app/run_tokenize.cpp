#include <cstdio>

#include "app/verbs.hpp"
#include "data/tokenize.hpp"

namespace forge {

void run_tokenize(const CommandLine& line) {
  const DocumentEnd end = line.document_end ? DocumentEnd::file : DocumentEnd::none;
  const TokenizeResult result = tokenize_bytes({line.inputs, line.output, end});
  std::printf("%s: %lld tokens (uint16, byte vocabulary) of %lld bytes, %lld document ends\n", line.output.c_str(),
              static_cast<long long>(result.tokens), static_cast<long long>(result.bytes),
              static_cast<long long>(result.documents));
}

}  // namespace forge
