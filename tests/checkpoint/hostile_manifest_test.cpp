#include <gtest/gtest.h>
#include <hdf5.h>

#include <functional>

#include "sample.hpp"

namespace forge::test {
namespace {

// A manifest whose hash has been made to fit, written by another hand.
class HostileManifest : public testing::Test {
 protected:
  Scratch scratch;
  fs::path path = write_sample(scratch.path, 1, 3);

  std::string opened_as(const std::function<void(hid_t)>& change) {
    const fs::path file = path / manifest_name;
    const std::string whole = text_of(file), hash = text_of(path / manifest_hash_name);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    const hid_t id = H5Fopen(file.c_str(), H5F_ACC_RDWR, access);
    H5Pclose(access);
    EXPECT_GE(id, 0);
    change(id);
    H5Fclose(id);
    put(path / manifest_hash_name, hex_of(hash_of_file(file)) + "  " + manifest_name + "\n");
    std::string problem = "accepted";
    try {
      CheckpointFiles files(path);
    } catch (const BadCheckpoint& error) {
      problem = error.what();
    }
    put(file, whole);
    put(path / manifest_hash_name, hash);
    return problem;
  }

  // Another value in a table of integers.
  std::string with_value(const char* table, std::size_t row, std::size_t column, std::int64_t value) {
    return opened_as([&](hid_t file) {
      const hid_t set = H5Dopen2(file, table, H5P_DEFAULT), space = H5Dget_space(set);
      const hsize_t start[2] = {row, column}, count[2] = {1, 1};
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
      const hid_t one = H5Screate_simple(2, count, nullptr);
      EXPECT_GE(H5Dwrite(set, H5T_NATIVE_INT64, one, space, H5P_DEFAULT, &value), 0);
      H5Sclose(one);
      H5Sclose(space);
      H5Dclose(set);
    });
  }
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(HostileManifest, TablesMustBeConsistent) {
  EXPECT_SAYS(with_value("/placement/tensors", 0, 0, 7), "unknown type");
  EXPECT_SAYS(with_value("/placement/tensors", 0, 1, 9), "rank");
  EXPECT_SAYS(with_value("/placement/tensors", 0, 2, std::int64_t{1} << 60), "shape");
  EXPECT_SAYS(with_value("/placement/tensors", 0, 2, -31), "shape");
  EXPECT_SAYS(with_value("/placement/tensors", 0, 2, 32), "every element");
  EXPECT_SAYS(with_value("/placement/pieces", 0, 1, -1), "outside of its tensor");
  EXPECT_SAYS(with_value("/placement/pieces", 0, 5, 1000), "outside of its tensor");
  EXPECT_SAYS(with_value("/placement/pieces", 0, 0, 3), "follow each other");
  EXPECT_SAYS(with_value("/placement/chunks", 0, 0, -8), "outside of its shard");
  EXPECT_SAYS(with_value("/placement/chunks", 0, 0, std::int64_t{1} << 40), "outside of its shard");
  EXPECT_SAYS(with_value("/placement/chunks", 0, 1, 1), "another size");
  EXPECT_SAYS(with_value("/placement/datasets", 0, 1, 99), "datasets");
  EXPECT_SAYS(with_value("/placement/datasets", 0, 4, std::int64_t{1} << 50), "datasets");
  EXPECT_SAYS(with_value("/placement/shards", 0, 0, -1), "shards");
  EXPECT_SAYS(with_value("/placement/shards", 0, 0, 1), "shards");
}

TEST_F(HostileManifest, LeadsNowhereElse) {
  const fs::path other = write_sample(scratch.path, 2, 3);
  const std::string foreign = (other / manifest_name).string();
  EXPECT_SAYS(opened_as([&](hid_t file) {
                H5Ldelete(file, "/placement/pieces", H5P_DEFAULT);
                H5Lcreate_external(foreign.c_str(), "/placement/pieces", file, "/placement/pieces", H5P_DEFAULT,
                                   H5P_DEFAULT);
              }),
              "no hard link");
  EXPECT_SAYS(opened_as([&](hid_t file) {
                H5Lmove(file, "/placement", file, "/elsewhere", H5P_DEFAULT, H5P_DEFAULT);
                H5Lcreate_soft("/elsewhere", file, "/placement", H5P_DEFAULT, H5P_DEFAULT);
              }),
              "no hard link");
  EXPECT_SAYS(opened_as([&](hid_t file) { H5Ldelete(file, "/placement/pieces", H5P_DEFAULT); }), "missing");
  EXPECT_SAYS(opened_as([&](hid_t file) { H5Adelete(file, "step"); }), "missing");
}

// Other kinds of storage, types and extents than forge's own.
TEST_F(HostileManifest, IsStoredAsForgeDoes) {
  const auto replaced = [&](hid_t type, std::vector<hsize_t> extents, const std::function<void(hid_t)>& storage) {
    return opened_as([&](hid_t file) {
      H5Ldelete(file, "/placement/chunks", H5P_DEFAULT);
      const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
      const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
      storage(list);
      const hid_t set = H5Dcreate2(file, "/placement/chunks", type, space, H5P_DEFAULT, list, H5P_DEFAULT);
      EXPECT_GE(set, 0);
      H5Dclose(set);
      H5Pclose(list);
      H5Sclose(space);
    });
  };
  const hsize_t chunk[3] = {1, 2, 1};
  const auto as_forge = [&](hid_t list) {
    H5Pset_chunk(list, 2, chunk);
    H5Pset_fletcher32(list);
  };
  EXPECT_SAYS(replaced(H5T_STD_I32LE, {4, 2}, as_forge), "another type");
  EXPECT_SAYS(replaced(H5T_STD_I64LE, {4, 3}, as_forge), "other extents");
  EXPECT_SAYS(replaced(H5T_STD_I64LE, {hsize_t{1} << 40, 2}, as_forge), "other extents");
  EXPECT_SAYS(replaced(H5T_STD_I64LE, {4, 2}, [](hid_t) {}), "not stored as forge does");
  EXPECT_SAYS(replaced(H5T_STD_I64LE, {4, 2}, [](hid_t list) { H5Pset_external(list, "/etc/passwd", 0, 64); }),
              "not stored as forge does");
  EXPECT_SAYS(replaced(H5T_STD_I64LE, {4, 2},
                       [&](hid_t list) {
                         H5Pset_chunk(list, 2, chunk);
                         H5Pset_deflate(list, 9);
                       }),
              "another filter");
  EXPECT_SAYS(replaced(H5T_STD_I64LE, {4, 2},
                       [&](hid_t list) {
                         as_forge(list);
                         H5Pset_shuffle(list);
                       }),
              "not stored as forge does");
}

}  // namespace
}  // namespace forge::test
