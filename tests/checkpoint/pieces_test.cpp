#include <gtest/gtest.h>
#include <hdf5.h>

#include <array>
#include <functional>

#include "checkpoint/save.hpp"
#include "comm/thread_communicator.hpp"
#include "sample.hpp"

// Manifests of format 2: manifest.h5 and its pieces.

namespace forge::test {
namespace {

#define EXPECT_TELLS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::string problem_of(const fs::path& path) {
  try {
    CheckpointFiles files(path);
  } catch (const BadCheckpoint& error) {
    return error.what();
  }
  return "accepted";
}

// Seven shards, two a piece: the last one has one.
class ManifestPieces : public testing::Test {
 protected:
  Scratch scratch;
  fs::path path = write_sample(scratch.path, 1, 7, {64}, 1, 0, 2);
  fs::path piece(int number) const { return path / piece_name(number); }
};

TEST_F(ManifestPieces, ReadBackOnAnyRanks) {
  for (int number = 0; number < 4; ++number) EXPECT_TRUE(fs::exists(piece(number)));
  EXPECT_FALSE(fs::exists(piece(4)));
  for (const int ranks : {1, 3, 7, 10}) EXPECT_TRUE(reads_back(path, ranks, 5));
  EXPECT_EQ(verify_checkpoint(path, 2), std::vector<std::string>{});
  CheckpointFiles files(path);
  EXPECT_EQ(files.facts().tokens, 7);
  EXPECT_EQ(files.facts().deck, "model: {}\n");
  EXPECT_EQ(files.manifest().shards.size(), 7u);
  EXPECT_EQ(files.manifest().tensors.size(), sample_tensors().size());
  EXPECT_EQ(files.missing(), "");
  // The same tensors and datasets as a manifest in one file.
  const CheckpointFiles whole(write_sample(scratch.path, 1, 7));
  EXPECT_EQ(whole.manifest().datasets.size(), files.manifest().datasets.size());
}

// A rank keeps the pieces that its own boxes reach.
TEST_F(ManifestPieces, AreReadWhereTheyReach) {
  SamplePieces wanted;
  const SampleTensor tokens = sample_tensors()[0];
  wanted.add(tokens, {{{30, 0}, {1, 24}}}, false);  // the last row: of the last ranks
  fs::remove(piece(0));
  CheckpointFiles files(path, datasets_of(wanted.tensors));
  files.read(wanted.tensors);
  SamplePieces expected;
  expected.add(tokens, {{{30, 0}, {1, 24}}}, true);
  EXPECT_EQ(wanted.memory, expected.memory);
  EXPECT_LT(files.manifest().shards.size(), 7u);
  EXPECT_TELLS(problem_of(path), piece_name(0));
}

TEST_F(ManifestPieces, DamageIsFound) {
  const auto found_by_parts = [&](int parts) {
    std::size_t found = 0;
    for (int part = 0; part < parts; ++part) found += verify_part(path, part, parts).size();
    return found;
  };
  for (const int parts : {1, 2, 7, 9}) EXPECT_EQ(found_by_parts(parts), 0u);
  const std::string whole = text_of(piece(2));
  std::string text = whole;
  text[text.size() / 2] ^= 1;
  put(piece(2), text);
  EXPECT_TELLS(problem_of(path), piece_name(2) + " has another SHA-256 than manifest.h5 says");
  EXPECT_EQ(verify_checkpoint(path, 1).size(), 1u);
  for (const int parts : {1, 2, 7, 9}) EXPECT_GE(found_by_parts(parts), 1u);
  put(piece(2), whole.substr(0, whole.size() - 1));
  EXPECT_TELLS(problem_of(path), "bytes, manifest.h5 says");
  fs::remove(piece(2));
  EXPECT_TELLS(problem_of(path), piece_name(2));
  EXPECT_EQ(verify_checkpoint(path, 1).size(), 1u);
  put(piece(2), text_of(piece(1)));
  EXPECT_TELLS(problem_of(path), piece_name(2));
  put(piece(2), whole);
  EXPECT_EQ(problem_of(path), "accepted");
  // Shards, looked for by two ranks.
  fs::remove(path / shard_name(6));
  put(path / shard_name(1), "x");
  CheckpointFiles files(path);
  EXPECT_TELLS(files.missing(0, 2), shard_name(1) + " has 1 bytes");
  EXPECT_TELLS(files.missing(1, 2), shard_name(6));
  EXPECT_EQ(verify_checkpoint(path, 3).size(), 2u);
  for (const int parts : {1, 2, 7, 9}) EXPECT_EQ(found_by_parts(parts), 2u);
}

// A node's first rank reads for all; what it finds, all throw.
TEST_F(ManifestPieces, OneRankOfANodeReads) {
  const auto read = [&](bool whole) {
    std::array<std::string, 4> thrown;
    run_ranks(4, [&](Communicator& ranks) {
      const auto node = ranks.split(ranks.rank() / 2, 0);
      SamplePieces wanted, expected;
      for (const SampleTensor& tensor : sample_tensors()) {
        const auto boxes = cut(tensor.shape, 4, hash_of(tensor.name))[static_cast<std::size_t>(ranks.rank())];
        wanted.add(tensor, boxes, false);
        expected.add(tensor, boxes, true);
      }
      try {
        CheckpointFiles files(path, datasets_of(wanted.tensors), node.get());
        files.read(wanted.tensors);
        if (wanted.memory != expected.memory) throw Error("other values");
      } catch (const BadCheckpoint& error) {
        thrown[static_cast<std::size_t>(ranks.rank())] = error.what();
      }
    });
    for (const std::string& text : thrown) EXPECT_EQ(text.empty(), whole) << text;
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_EQ(thrown[2], thrown[3]);
  };
  read(true);
  put(path / manifest_hash_name, std::string(64, '0') + "  manifest.h5\n");
  read(false);
  write_manifest_hash(path);
  for (int number = 0; number < 4; ++number) put(piece(number), "");
  read(false);
}

// The ranks that write: more than a piece has shards, some without a tensor, a whole group of them, too.
TEST(SavesInPieces, OfRanksWithoutTensors) {
  const Scratch scratch;
  const auto parts_of = [](const SampleTensor& tensor) { return cut(tensor.shape, 4, hash_of(tensor.name)); };
  const std::array<int, 4> writers{0, 1, 4, 6};
  run_ranks(8, [&](Communicator& ranks) {
    SamplePieces pieces;
    const auto found = std::find(writers.begin(), writers.end(), ranks.rank());
    if (found != writers.end())
      for (const SampleTensor& tensor : sample_tensors())
        pieces.add(tensor, parts_of(tensor)[static_cast<std::size_t>(found - writers.begin())], true);
    Stream stream(1);
    const DevicePieces on_device(pieces, stream);
    SavePlan plan{scratch.path, 1, 0, {2048}};
    plan.shards_of_piece = 2;
    CheckpointSaver saver(ranks, plan, ranks.size() % 2 == 1);
    for (const std::int64_t step : {1, 2}) saver.save(sample_facts(step), on_device.tensors, stream);
    saver.finish();
  });
  const auto steps = committed_steps(scratch.path);
  ASSERT_EQ(steps.size(), 1u) << "the older one was removed when the new one had been read back";
  const fs::path path = steps[0].path;
  EXPECT_TRUE(fs::exists(path / piece_name(0)));
  EXPECT_FALSE(fs::exists(path / piece_name(1)));
  EXPECT_TRUE(fs::exists(path / piece_name(3)));
  EXPECT_EQ(verify_checkpoint(path, 1), std::vector<std::string>{});
  EXPECT_TRUE(reads_back(path, 3, 5));
}

// Tables that were changed, with hashes that were made to fit.
class HostilePieces : public ManifestPieces {
 protected:
  static void change(const fs::path& file, const std::function<void(hid_t)>& f) {
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    const hid_t id = H5Fopen(file.c_str(), H5F_ACC_RDWR, access);
    H5Pclose(access);
    ASSERT_GE(id, 0);
    f(id);
    H5Fclose(id);
  }
  static void write(hid_t file, const char* table, hsize_t row, hsize_t column, hsize_t columns, hid_t type,
                    const void* values) {
    const hid_t set = H5Dopen2(file, table, H5P_DEFAULT), space = H5Dget_space(set);
    const hsize_t start[2] = {row, column}, count[2] = {1, columns};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
    const hid_t part = H5Screate_simple(2, count, nullptr);
    EXPECT_GE(H5Dwrite(set, type, part, space, H5P_DEFAULT, values), 0) << table;
    H5Sclose(part);
    H5Sclose(space);
    H5Dclose(set);
  }
  // What a reader says of manifest.h5 with another value.
  std::string root_with(const char* table, hsize_t row, hsize_t column, std::int64_t value) {
    const std::string whole = text_of(path / manifest_name);
    change(path / manifest_name, [&](hid_t file) { write(file, table, row, column, 1, H5T_NATIVE_INT64, &value); });
    return opened_and_restored(whole);
  }
  // … of its piece 1, whose hash and bytes fit.
  std::string piece_with(const std::function<void(hid_t)>& f) {
    const std::string root = text_of(path / manifest_name), whole = text_of(piece(1));
    change(piece(1), f);
    const Hash hash = hash_of_file(piece(1));
    const auto bytes = static_cast<std::int64_t>(fs::file_size(piece(1)));
    change(path / manifest_name, [&](hid_t file) {
      write(file, "/placement/file_hashes", 1, 0, 32, H5T_NATIVE_UINT8, hash.data());
      write(file, "/placement/files", 1, 4, 1, H5T_NATIVE_INT64, &bytes);
    });
    const std::string said = opened_and_restored(root);
    put(piece(1), whole);
    return said;
  }
  std::string piece_with(const char* table, hsize_t row, hsize_t column, std::int64_t value) {
    return piece_with([&](hid_t file) { write(file, table, row, column, 1, H5T_NATIVE_INT64, &value); });
  }

 private:
  std::string opened_and_restored(const std::string& root) {
    write_manifest_hash(path);
    const std::string said = problem_of(path);
    EXPECT_EQ(verify_checkpoint(path, 1).empty(), said == "accepted") << said;
    put(path / manifest_name, root);
    write_manifest_hash(path);
    return said;
  }
};

TEST_F(HostilePieces, RootMustBeConsistent) {
  EXPECT_TELLS(root_with("/placement/files", 1, 0, 0), "list of pieces");
  EXPECT_TELLS(root_with("/placement/files", 1, 0, -3), "list of pieces");
  EXPECT_TELLS(root_with("/placement/files", 1, 1, 1), "list of pieces");
  EXPECT_TELLS(root_with("/placement/files", 3, 2, -1), "list of pieces");
  EXPECT_TELLS(root_with("/placement/files", 1, 3, 9), "list of pieces");
  EXPECT_TELLS(root_with("/placement/files", 1, 3, 1), "has not the shards of its row");
  EXPECT_TELLS(root_with("/placement/files", 1, 4, 1), "bytes, manifest.h5 says");
  EXPECT_TELLS(root_with("/placement/files", 3, 0, 77), piece_name(77));
  EXPECT_TELLS(root_with("/placement/reach", 0, 0, 4), "placement/reach");
  EXPECT_TELLS(root_with("/placement/reach", 1, 1, 0), "placement/reach");
  EXPECT_TELLS(root_with("/placement/reach", 0, 1, 99), "placement/reach");
  EXPECT_TELLS(root_with("/placement/reach", 0, 2, 0), "more elements");
  EXPECT_TELLS(root_with("/placement/reach", 0, 2, std::int64_t{1} << 62), "more elements");
  EXPECT_TELLS(root_with("/placement/reach", 0, 2, 1), "every element");
  EXPECT_TELLS(root_with("/placement/reach", 0, 3, -1), "outside of its tensor");
  EXPECT_TELLS(root_with("/placement/reach", 0, 7, 1000), "outside of its tensor");
  EXPECT_TELLS(root_with("/placement/tensors", 0, 2, 32), "every element");
}

TEST_F(HostilePieces, PiecesMustBeWhatTheRootSays) {
  EXPECT_EQ(piece_with([](hid_t) {}), "accepted");
  EXPECT_TELLS(piece_with("/placement/shards", 0, 0, 6), "shard of another piece");
  EXPECT_TELLS(piece_with("/placement/shards", 0, 0, 3), "list of shards");
  EXPECT_TELLS(piece_with("/placement/tensors", 0, 0, 0), "of another type or shape");
  EXPECT_TELLS(piece_with("/placement/tensors", 0, 2, 77), "of another type or shape");
  EXPECT_TELLS(piece_with("/placement/pieces", 0, 1, -1), "outside of its tensor");
  EXPECT_TELLS(piece_with("/placement/pieces", 0, 0, 3), "follow each other");
  EXPECT_TELLS(piece_with("/placement/chunks", 0, 0, std::int64_t{1} << 40), "outside of its shard");
  EXPECT_TELLS(piece_with("/placement/datasets", 0, 0, 99), "placement/datasets");
  EXPECT_TELLS(piece_with([](hid_t file) { H5Ldelete(file, "/placement/pieces", H5P_DEFAULT); }), "missing");
  EXPECT_TELLS(piece_with([](hid_t file) { H5Adelete(file, "format"); }), "missing");
  // A box moved by a row: of the same size, at another place than manifest.h5 says.
  const std::string said = piece_with([](hid_t file) {
    const hid_t set = H5Dopen2(file, "/placement/pieces", H5P_DEFAULT);
    std::int64_t first[9];
    const hid_t space = H5Dget_space(set);
    const hsize_t start[2] = {0, 0}, count[2] = {1, 9};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
    const hid_t part = H5Screate_simple(2, count, nullptr);
    H5Dread(set, H5T_NATIVE_INT64, part, space, H5P_DEFAULT, first);
    first[1] -= 1;
    H5Dwrite(set, H5T_NATIVE_INT64, part, space, H5P_DEFAULT, first);
    H5Sclose(part);
    H5Sclose(space);
    H5Dclose(set);
  });
  EXPECT_TELLS(said, "holds other parts of");
}

}  // namespace
}  // namespace forge::test
