#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace forge {

// Whoever calls libhdf5 holds one of these. The library has one state for the process and isn't made for threads,
// while ranks may be threads, and each may save behind its training. Errors are returned, not printed; no filter
// plug-ins are loaded; nothing is closed when the process exits (a library that lost a file crashes there).
class Hdf5Lock {
 public:
  Hdf5Lock();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// An identifier of libhdf5, closed at the end of its life.
class Hid {
 public:
  using Close = herr_t (*)(hid_t);
  Hid() = default;
  // Throws IoFailed with the call's name and the file where the call returned a negative identifier.
  Hid(hid_t id, Close close, const char* call, const std::string& file);
  Hid(Hid&& other) noexcept;
  Hid& operator=(Hid&& other) noexcept;
  ~Hid();

  operator hid_t() const { return id_; }
  // Closes now, and throws IoFailed where that fails: data may be lost then.
  void close(const char* call, const std::string& file);

 private:
  Hid(hid_t id, Close close) : id_(id), close_(close) {}  // the object is closed, whatever comes next
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// Throws IoFailed where `status` is negative.
void check_hdf5(long long status, const char* call, const std::string& file);

// A new file, which must not be there yet, of the format that HDF5 1.10 and later read. No object has a time of its
// own: equal contents give equal bytes.
Hid create_file(const std::string& path);
// Makes the group that "/group/name" or "group/name" stands in, if it isn't there.
void make_group_of(hid_t file, const std::string& name, const std::string& path);

// The type that files have for ours: little-endian; bf16 is a float of 8 and 7 bits, which readers convert.
Hid file_type(DType type);
// Dataset creation: chunked, each chunk with Fletcher's checksum.
Hid checked_chunks(const std::vector<hsize_t>& chunk, const std::string& file);

}  // namespace forge
