// libFuzzer's input is a token file with what stands beside it: a byte for the kind, the length of the first file in
// four bytes, and the files. It is refused with BadInput, or read: every document, and every sample, cut and packed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.hpp"
#include "data/token_set.hpp"
#include "scratch.hpp"
#include "text/token_writer.hpp"

namespace forge {
namespace {

namespace fs = std::filesystem;
using test::get;
using test::put;

constexpr std::int64_t T = 8, V = 65536;
enum Kind : std::uint8_t { npy, megatron, llm_c, ds, mask, plan, raw, kinds };

test::FuzzScratch& scratch() {
  static test::FuzzScratch instance("token_fuzz");
  return instance;
}

const char* name_of_kind(int kind) {
  constexpr const char* names[] = {"x.npy", "x.bin", "l.bin", "x.ds", "m.bin", "p.bin", "r.bin"};
  return names[kind];
}

TokenSetOptions options_of(int kind) {
  TokenSetOptions options{{scratch() / name_of_kind(kind)}, TokenType::none, T, V};
  if (kind == raw || kind == mask || kind == plan) options.dtype = TokenType::uint16;
  if (kind == mask) options.mask_files = {scratch() / "mask.npy"};
  if (kind == megatron || kind == ds) options.document_ends = DocumentEnds::index;
  if (kind == plan) {
    options.packing = Packing::best_fit;
    options.document_end_token = 9;
    options.packing_directory = scratch() / "plans";
  }
  return options;
}

void write_files(int kind, std::string_view first, std::string_view second) {
  switch (kind) {
    case megatron:
      put(scratch() / "x.bin", first);
      return put(scratch() / "x.idx", second);
    case ds:
      put(scratch() / "x.ds", first);
      put(scratch() / "x.ds.metadata", "x|2\n");
      return put(scratch() / "x.ds.index", second);
    case mask:
      put(scratch() / "m.bin", first);
      return put(scratch() / "mask.npy", second);
    case plan: {  // of a fixed file
      static const std::string path = [] {
        std::string tokens;
        for (int i = 0; i < 400; ++i) tokens += {static_cast<char>(i * i % 11), '\0'};
        put(scratch() / "p.bin", tokens);
        return TokenSet(options_of(plan)).plan()->path();
      }();
      return put(path, first);
    }
    default:
      return put(scratch() / name_of_kind(kind), first);
  }
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "what was accepted is wrong: %s\n", what);
  std::abort();
}

void read_all(const TokenSet& set) {
  Sample sample(T);
  for (std::int64_t i = 0; i < set.samples(); ++i) {
    set.read(i, sample);
    for (std::size_t t = 0; t < sample.labels.size(); ++t) {
      expect(sample.tokens[t] >= 0 && sample.tokens[t] < V, "a token");
      expect(sample.labels[t] >= masked_label && sample.labels[t] < V, "a label");
      const bool same = t > 0 && sample.documents[t] == sample.documents[t - 1];
      expect(sample.positions[t] == (same ? sample.positions[t - 1] + 1 : 0), "a position");
    }
  }
}

// 0: refused, 1: opened, 2: read to its end.
int run(int kind, std::string_view first, std::string_view second) {
  int result = 0;
  try {
    write_files(kind, first, second);
    const TokenSet set(options_of(kind));
    result = 1;
    if (const DocumentIndex* index = set.files()[0].documents()) {
      std::int64_t before = 0;
      for (std::int64_t d = 0; d <= index->documents(); ++d) {
        const std::int64_t start = index->start(d);
        expect(start >= before && start <= set.tokens(), "a document");
        before = start;
      }
      expect(before == set.tokens(), "the last document");
    }
    read_all(set);
    if (kind == megatron || kind == ds) {
      TokenSetOptions packed = options_of(kind);
      packed.packing = Packing::best_fit;
      packed.packing_directory = scratch() / "plans";
      const TokenSet best(packed);
      read_all(best);
      fs::remove(best.plan()->path());
    }
    result = 2;
  } catch (const BadInput&) {
  }
  return result;
}

std::string input_of(int kind, const std::string& first, const std::string& second) {
  const auto length = static_cast<std::uint32_t>(first.size());
  std::string input(1, static_cast<char>(kind));
  input.append(reinterpret_cast<const char*>(&length), sizeof length);
  return input + first + second;
}

std::string seed_of(int kind) {
  constexpr TokenFormat formats[] = {TokenFormat::npy, TokenFormat::megatron, TokenFormat::llm_c, TokenFormat::ds,
                                     TokenFormat::raw, TokenFormat::raw,      TokenFormat::raw};
  if (kind == plan) {
    write_files(plan, "", "");
    fs::remove_all(scratch() / "plans");
    const TokenSet set(options_of(plan));
    return input_of(kind, get(set.plan()->path()), "");
  }
  const auto writer = TokenWriter::open(scratch() / name_of_kind(kind), formats[kind], V);
  for (std::int32_t d = 1; d < 9; ++d) {
    for (std::int32_t i = 0; i < 5 * d; ++i) writer->append(std::vector<std::int32_t>{i * d});
    writer->end_document();
  }
  writer->finish();
  std::string second;
  if (kind == megatron) second = get(scratch() / "x.idx");
  if (kind == ds) second = get(scratch() / "x.ds.index");
  if (kind == mask)
    second = std::string("\x93NUMPY\x01\x00\x36\x00", 10) +
             "{'descr': '|u1', 'fortran_order': False, 'shape': (180,)}" + std::string(180, '\x01');
  if (kind == mask) second[8] = static_cast<char>(second.size() - 190);
  return input_of(kind, get(scratch() / name_of_kind(kind)), second);
}

// How many inputs ended how: fuzzing that only ever refuses would show nothing.
struct Counts {
  std::uint64_t by[3] = {0, 0, 0};
  ~Counts() {
    std::fprintf(stderr, "accepted: %llu refused, %llu opened, %llu of these read to their end\n",
                 static_cast<unsigned long long>(by[0]), static_cast<unsigned long long>(by[1] + by[2]),
                 static_cast<unsigned long long>(by[2]));
  }
};

int run_input(std::string_view input) {
  if (input.size() < 5) return 0;
  std::uint32_t length = 0;
  std::memcpy(&length, input.data() + 1, sizeof length);
  const std::string_view files = input.substr(5);
  const std::size_t first = std::min<std::size_t>(length, files.size());
  return run(static_cast<std::uint8_t>(input[0]) % kinds, files.substr(0, first), files.substr(first));
}

}  // namespace
}  // namespace forge

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using namespace forge;
  fs::create_directories(scratch() / "plans");
  if (*argc == 3 && std::string((*argv)[1]) == "--seeds") {
    for (int kind = 0; kind < kinds; ++kind) {
      const std::string input = seed_of(kind);
      if (run_input(input) != 2) {
        std::fprintf(stderr, "seed %d isn't read\n", kind);
        std::abort();
      }
      put(std::string((*argv)[2]) + "/" + std::to_string(kind), input);
    }
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static forge::Counts counts;
  ++counts.by[forge::run_input({reinterpret_cast<const char*>(data), size})];
  return 0;
}
