// libFuzzer's input is a manifest.h5, of format 1 or 2. Its hash is made to fit, as whoever wants to do harm would do,
// and it stands beside real shards and pieces: it is refused with BadCheckpoint, or read. It is read as a piece of a
// manifest, too. Half of the mutations change values of the tables, the others any bytes.
#include <hdf5.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>

#include "checkpoint/table_file.hpp"
#include "sample.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace forge::test {
namespace {

constexpr int ranks = 2;
constexpr const char* tables[] = {"/placement/tensors", "/placement/shards", "/placement/datasets", "/placement/pieces",
                                  "/placement/chunks"};
constexpr std::int64_t columns[] = {6, 2, 6, 9, 2};
constexpr std::size_t datasets = 2, chunks = 4;  // of these

// Where the sample's manifest keeps its tables: each in one chunk.
struct Place {
  std::size_t offset = 0, rows = 0;
};

class Fuzzed {
 public:
  Fuzzed() : path_(write_sample(scratch_.path, 1, ranks, {512})), seed_(text_of(path_ / manifest_name)) {
    // Any name but that of another step.
    fs::rename(path_, scratch_.path / "checkpoint");
    path_ = scratch_.path / "checkpoint";
    for (int rank = 0; rank < ranks; ++rank) shards_.push_back(text_of(path_ / shard_name(rank)));
    // The same shards once more, with a piece of the manifest each.
    const fs::path other = write_sample(scratch_.path, 2, ranks, {512}, 1, 0, 1);
    root_ = text_of(other / manifest_name);
    for (int rank = 0; rank < ranks; ++rank) fs::copy(other / piece_name(rank), path_ / piece_name(rank));
    const hid_t file = H5Fopen((path_ / manifest_name).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    for (const char* table : tables) places_.push_back(place_of(file, table));
    hashes_ = place_of(file, "/placement/chunk_hashes");
    H5Fclose(file);
  }

  const std::string& seed() const { return seed_; }
  const std::string& root() const { return root_; }
  std::string piece() const { return text_of(path_ / piece_name(0)); }
  // The same manifest with a text in several chunks, which HDF5 keeps in a fixed array.
  std::string second_seed() const {
    const fs::path other = scratch_.path / "second.h5";
    put(other, seed_);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    const hid_t file = H5Fopen(other.c_str(), H5F_ACC_RDWR, access);
    H5Ldelete(file, "/run/deck", H5P_DEFAULT);
    const hsize_t extent[2] = {200, 1}, chunk[2] = {64, 1};
    H5Pset_chunk(list, 2, chunk);
    H5Pset_fletcher32(list);
    const hid_t space = H5Screate_simple(2, extent, nullptr);
    const hid_t set = H5Dcreate2(file, "/run/deck", H5T_STD_U8LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    const std::vector<std::uint8_t> text(200, 'x');
    if (H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0) std::abort();
    H5Dclose(set);
    H5Sclose(space);
    H5Fclose(file);
    H5Pclose(list);
    H5Pclose(access);
    if (run(text_of(other)) != 2) std::abort();
    return text_of(other);
  }

  // 0: refused, 1: its tables are read, 2: its tensors are the sample's, too.
  int run(const std::string& manifest) const {
    put(path_ / manifest_name, manifest);
    const auto bytes = std::as_bytes(std::span(manifest));
    put(path_ / manifest_hash_name, hex_of(sha256(bytes)) + "  " + manifest_name + "\n");
    read_as_piece(manifest);
    const auto findings = verify_checkpoint(path_, 1);
    int result = 0;
    try {
      CheckpointFiles files(path_);
      result = 1;
      files.missing();
      for (const SampleTensor& tensor : sample_tensors())
        if (const StoredTensor* stored = files.find(tensor.name);
            !stored || stored->type != tensor.type || stored->shape != tensor.shape)
          return result;
      // A rank that keeps only its rows of the table.
      SamplePieces wanted;
      for (const SampleTensor& tensor : sample_tensors()) wanted.add(tensor, cut(tensor.shape, 3, 5)[1], false);
      CheckpointFiles(path_, datasets_of(wanted.tensors)).read(wanted.tensors);
      // All of it, on several layouts. With hashes that were made to fit, the values may be others.
      for (const int readers : {1, 3})
        if (!reads_back(files, readers, 5)) return result;
      result = 2;
    } catch (const BadCheckpoint& error) {
      if (result == 0 && findings.empty()) {
        std::fprintf(stderr, "refused by a reader, whole for verify: %s\n", error.what());
        std::abort();
      }
    }
    return result;
  }

  // 1: it is what the root says of its first piece.
  int read_as_piece(const std::string& bytes) const {
    try {
      const ManifestRoot root = read_root(TableFile("root", root_));
      Manifest manifest;
      manifest.tensors = root.tensors;
      read_piece(TableFile("piece", bytes), root, 0, {}, manifest);
      return 1;
    } catch (const BadCheckpoint&) {
      return 0;
    }
  }

  // Values of the tables; then, at times, the hashes of the bytes that they point at.
  void change_tables(std::string& manifest, std::minstd_rand& random) const {
    if (manifest.size() < seed_.size()) manifest = seed_;
    const auto draw = [&](std::size_t below) { return static_cast<std::size_t>(random()) % below; };
    for (std::size_t n = 1 + draw(3); n > 0; --n) {
      const std::size_t t = draw(std::size(tables)), cells = places_[t].rows * static_cast<std::size_t>(columns[t]);
      const std::size_t at = places_[t].offset + 8 * draw(cells), from = places_[t].offset + 8 * draw(cells);
      const auto old = static_cast<std::uint64_t>(number(manifest, at));  // wraps
      const std::uint64_t values[] = {0,
                                      1,
                                      ~std::uint64_t{0},
                                      old + 1,
                                      old - 1,
                                      old * 2,
                                      static_cast<std::uint64_t>(number(manifest, from)),
                                      draw(100),
                                      draw(shards_[0].size()),
                                      std::uint64_t{1} << 32,
                                      std::uint64_t{1} << 56,
                                      std::uint64_t{1} << 63,
                                      (std::uint64_t{1} << 63) - 1};
      set_number(manifest, at, static_cast<std::int64_t>(values[draw(std::size(values))]));
    }
    if (draw(2) == 0) rehash(manifest);
  }

 private:
  static Place place_of(hid_t file, const char* table) {
    const hid_t set = H5Dopen2(file, table, H5P_DEFAULT), space = H5Dget_space(set);
    hsize_t extent[2] = {0, 0};
    H5Sget_simple_extent_dims(space, extent, nullptr);
    const hsize_t first[2] = {0, 0};
    haddr_t address = HADDR_UNDEF;
    hsize_t size = 0;
    unsigned filters = 0;
    if (H5Dget_chunk_info_by_coord(set, first, &filters, &address, &size) < 0) std::abort();
    H5Sclose(space);
    H5Dclose(set);
    return {address, extent[0]};
  }
  static std::int64_t number(const std::string& text, std::size_t at) {
    std::int64_t value;
    std::memcpy(&value, text.data() + at, sizeof value);
    return value;
  }
  static void set_number(std::string& text, std::size_t at, std::int64_t value) {
    std::memcpy(text.data() + at, &value, sizeof value);
  }
  void rehash(std::string& manifest) const {
    std::size_t c = 0;
    for (std::size_t d = 0; d < places_[datasets].rows; ++d) {
      const std::size_t row = places_[datasets].offset + d * 48;
      const std::int64_t shard = number(manifest, row + 8), count = number(manifest, row + 40);
      for (std::int64_t i = 0; i < count && c < places_[chunks].rows; ++i, ++c) {
        const std::size_t at = places_[chunks].offset + 16 * c;
        const auto offset = static_cast<std::uint64_t>(number(manifest, at)),
                   bytes = static_cast<std::uint64_t>(number(manifest, at + 8));
        if (shard < 0 || shard >= ranks) continue;
        const std::string& text = shards_[static_cast<std::size_t>(shard)];
        if (bytes > text.size() || offset > text.size() - bytes) continue;
        const Hash hash = sha256(std::as_bytes(std::span(text)).subspan(offset, bytes));
        std::memcpy(manifest.data() + hashes_.offset + 32 * c, hash.data(), hash.size());
      }
    }
  }

  Scratch scratch_;
  fs::path path_;
  std::string seed_, root_;
  std::vector<std::string> shards_;
  std::vector<Place> places_;
  Place hashes_;
};

Fuzzed& fuzzed() {
  static Fuzzed instance;
  return instance;
}

// How many inputs ended how: fuzzing that only ever refuses would show nothing.
struct Counts {
  std::uint64_t by[3] = {0, 0, 0};
  ~Counts() {
    std::fprintf(stderr, "accepted: %llu refused, %llu with tables that hold, %llu of these with the right tensors\n",
                 static_cast<unsigned long long>(by[0]), static_cast<unsigned long long>(by[1] + by[2]),
                 static_cast<unsigned long long>(by[2]));
  }
};

}  // namespace
}  // namespace forge::test

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using namespace forge::test;
  fuzzed();
  if (*argc == 3 && std::string((*argv)[1]) == "--seeds") {
    const fs::path corpus = (*argv)[2];
    if (fuzzed().run(fuzzed().seed()) != 2) std::abort();
    put(corpus / "first", fuzzed().seed());
    put(corpus / "second", fuzzed().second_seed());
    if (fuzzed().run(fuzzed().root()) != 2 || fuzzed().read_as_piece(fuzzed().piece()) != 1) std::abort();
    put(corpus / "third", fuzzed().root());
    put(corpus / "fourth", fuzzed().piece());
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static forge::test::Counts counts;
  ++counts.by[forge::test::fuzzed().run({reinterpret_cast<const char*>(data), size})];
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, most);
  std::string manifest(reinterpret_cast<const char*>(data), size);
  forge::test::fuzzed().change_tables(manifest, random);
  const std::size_t bytes = std::min(most, manifest.size());
  std::memcpy(data, manifest.data(), bytes);
  return bytes;
}
