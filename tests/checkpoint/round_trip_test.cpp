#include <gtest/gtest.h>
#include <hdf5.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "sample.hpp"

namespace forge::test {
namespace {

// Written by any number of ranks in any parts, and read in any others.
TEST(RoundTrip, AnyPartsGiveTheSameBytes) {
  const Scratch scratch;
  for (const int writers : {1, 2, 5})
    for (const std::size_t chunk : {8, 100, 1 << 20}) {
      const std::string path = write_sample(scratch.path, 10, writers, {chunk}, static_cast<std::uint64_t>(writers));
      CheckpointFiles files(path);
      for (const int readers : {1, 3, 4}) EXPECT_TRUE(reads_back(files, readers, 99)) << writers << " to " << readers;
    }
}

// What a save behind the next steps writes is there when these begin.
TEST(RoundTrip, StateIsCopiedWhenTheCallReturns) {
  constexpr std::int64_t n = 1000;
  constexpr std::size_t bytes = n * sizeof(double);
  Stream stream;
  const Buffer state(bytes);
  const std::vector<StateTensor> tensors{{"x", DType::f64, {n}, 0, {{{{0}, {n}}, state.data()}}}};
  PinnedVector<std::byte> memory;
  for (int round = 1; round <= 20; ++round) {
    const std::vector<double> values(n, round);
    copy_to_device(stream, state.data(), values.data(), bytes);
    const auto copies = copied_to_host(tensors, stream, memory);
    ASSERT_EQ(std::memcmp(copies.at(0).pieces.at(0).data, values.data(), bytes), 0) << round;
    stream.synchronize();
  }
}

TEST(RoundTrip, KeepsTheFacts) {
  const Scratch scratch;
  const CheckpointFiles files(write_sample(scratch.path, 12, 3));
  const CheckpointFacts expected = sample_facts(12), &facts = files.facts();
  EXPECT_EQ(facts.step, expected.step);
  EXPECT_EQ(facts.tokens, expected.tokens);
  EXPECT_EQ(facts.samples, expected.samples);
  EXPECT_EQ(facts.updates, expected.updates);
  EXPECT_EQ(facts.bad_in_a_row, expected.bad_in_a_row);
  EXPECT_EQ(facts.seed, expected.seed);
  EXPECT_EQ(facts.ranks, expected.ranks);
  EXPECT_EQ(facts.deck, expected.deck);
  EXPECT_EQ(facts.build, expected.build);
  EXPECT_EQ(facts.data, expected.data);
  ASSERT_NE(files.find("first_moment/layers.0.mlp.down"), nullptr);
  EXPECT_EQ(files.find("first_moment/layers.0.mlp.down")->type, DType::bf16);
  EXPECT_EQ(files.find("parameters/none"), nullptr);
  EXPECT_EQ(files.missing(), "");
}

// Tables larger than one chunk of the file, which HDF5 keeps in an array of places: read without libhdf5, as it reads
// them.
TEST(RoundTrip, TablesOfSeveralChunks) {
  const Scratch scratch;
  const std::string path = scratch.path / manifest_name;
  Manifest written;
  written.facts = sample_facts(3);
  for (std::size_t i = 0; i < 2'500'001; ++i) written.facts.deck += static_cast<char>('a' + mix(4, i) % 26);
  constexpr std::int64_t chunks = 70'000;  // rows of 16 and of 32 bytes: two chunks of 1 MiB, and three
  written.tensors.push_back({"parameters/one", DType::f32, {chunks}});
  written.shards.push_back({0, 8 * chunks, sha256({})});
  StoredDataset dataset{0, 0, chunks, 1, {{{{0}, {chunks}}, 0}}, {}};
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto at = static_cast<std::uint64_t>(8 * c);
    dataset.chunks.push_back({at, 8, sha256(std::as_bytes(std::span(&at, 1)))});
  }
  written.datasets.push_back(dataset);
  write_manifest(path, written);

  const Manifest read = read_manifest(path);
  EXPECT_TRUE(read.facts.deck == written.facts.deck);
  EXPECT_EQ(read.shards.at(0).rest, written.shards[0].rest);
  ASSERT_EQ(read.datasets.at(0).chunks.size(), dataset.chunks.size());
  for (std::size_t c = 0; c < dataset.chunks.size(); ++c) {
    EXPECT_EQ(read.datasets[0].chunks[c].offset, dataset.chunks[c].offset);
    EXPECT_EQ(read.datasets[0].chunks[c].hash, dataset.chunks[c].hash);
  }

  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t set = H5Dopen2(file, "/run/deck", H5P_DEFAULT);
  const hid_t space = H5Dget_space(set);
  hsize_t number = 0;
  ASSERT_GE(H5Dget_num_chunks(set, space, &number), 0);
  EXPECT_EQ(number, 3u);
  std::string deck(written.facts.deck.size(), ' ');
  ASSERT_GE(H5Dread(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, deck.data()), 0);
  EXPECT_TRUE(deck == written.facts.deck);
  H5Sclose(space);
  H5Dclose(set);
  H5Fclose(file);
}

// A reader takes the chunks that overlap its boxes, not the files.
TEST(RoundTrip, ReadsOnlyWhatIsAskedFor) {
  const Scratch scratch;
  CheckpointFiles files(write_sample(scratch.path, 1, 2, {96}));
  SamplePieces wanted;
  const SampleTensor down = sample_tensors()[1];
  wanted.add(down, {Box{{0, 10}, {24, 10}}}, false);  // two of the strips that stand together
  files.read(wanted.tensors);
  // 24 · 10 elements. Each rank's part is at most 3 boxes, so the two strips are at most 2 · 2 · 3 stretches, each of
  // which begins and ends in a chunk of 100 bytes.
  const double needed = 24 * 10 * 4;
  EXPECT_LE(static_cast<double>(files.bytes_read()), needed * 100 / 96 + 2 * 12 * 100);
  EXPECT_LT(files.bytes_read(), 24u * 40 * 4);
}

// A rank's table has the datasets that its boxes need, however many ranks wrote.
TEST(RoundTrip, HoldsOnlyTheRowsThatAreWanted) {
  const Scratch scratch;
  const std::string path = write_sample(scratch.path, 1, 5);
  const SampleTensor tokens = sample_tensors()[0];
  const CheckpointFiles all(path);
  for (int reader = 0; reader < 3; ++reader) {
    SamplePieces wanted, expected;
    const auto boxes = cut(tokens.shape, 3, 99)[static_cast<std::size_t>(reader)];
    wanted.add(tokens, boxes, false);
    expected.add(tokens, boxes, true);
    std::size_t needed = 0;
    for (const StoredDataset& d : all.manifest().datasets) {
      if (all.manifest().tensors[static_cast<std::size_t>(d.tensor)].name != tokens.name) continue;
      bool meets = false;
      for (const StoredPiece& piece : d.pieces)
        for (const Box& box : boxes) meets = meets || overlap(piece.box, box);
      needed += meets;
    }
    CheckpointFiles files(path, datasets_of(wanted.tensors));
    EXPECT_EQ(files.manifest().datasets.size(), needed);
    EXPECT_LE(needed, 5u);
    EXPECT_EQ(files.manifest().tensors.size(), all.manifest().tensors.size());
    files.read(wanted.tensors);
    EXPECT_EQ(wanted.memory, expected.memory);
    EXPECT_EQ(files.bytes_needed(), wanted.memory.empty() ? 0 : bytes_of(wanted.tensors));
  }
}

TEST(RoundTrip, TheSameStateGivesTheSameFiles) {
  const Scratch scratch;
  const std::string first = write_sample(scratch.path / "a", 3, 2), second = write_sample(scratch.path / "b", 3, 2);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(first)) {
    EXPECT_EQ(hash_of_file(entry.path()), hash_of_file(second + "/" + entry.path().filename().string()))
        << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 4);
}

// As any HDF5 program sees it: whole tensors, of the manifest alone, wherever the directory lies.
TEST(RoundTrip, HasWholeTensorsAsVirtualDatasets) {
  const Scratch scratch;
  const fs::path moved = scratch.path / "moved";
  fs::rename(write_sample(scratch.path, 1, 3), moved);
  const hid_t file = H5Fopen((moved / manifest_name).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  for (const SampleTensor& tensor : sample_tensors()) {
    const hid_t set = H5Dopen2(file, tensor.name.c_str(), H5P_DEFAULT);
    ASSERT_GE(set, 0) << tensor.name;
    const hid_t type = H5Dget_type(set);
    std::vector<std::byte> read(tensor.bytes().size());
    ASSERT_GE(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.data()), 0) << tensor.name;
    EXPECT_EQ(read, tensor.bytes()) << tensor.name;
    H5Tclose(type);
    H5Dclose(set);
  }
  H5Fclose(file);
}

// bf16 is a type that other programs convert.
TEST(RoundTrip, Bf16ReadsAsFloat) {
  const Scratch scratch;
  const std::string path = write_sample(scratch.path, 1, 1);
  const hid_t file = H5Fopen((path + "/" + manifest_name).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hid_t set = H5Dopen2(file, "first_moment/layers.0.mlp.down", H5P_DEFAULT);
  const SampleTensor tensor = sample_tensors()[4];
  std::vector<float> read(static_cast<std::size_t>(element_count(tensor.shape)));
  ASSERT_GE(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.data()), 0);
  const auto bytes = tensor.bytes();
  for (std::size_t i = 0; i < read.size(); ++i) {
    bf16 value;
    std::memcpy(&value, bytes.data() + 2 * i, 2);
    const float expected = static_cast<float>(value);
    EXPECT_TRUE(read[i] == expected || (std::isnan(read[i]) && std::isnan(expected))) << i;
  }
  H5Dclose(set);
  H5Fclose(file);
}

}  // namespace
}  // namespace forge::test
