#include "checkpoint/hdf5.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "checkpoint/hdf5_version.hpp"
#include "core/faults.hpp"
#include "core/file_errors.hpp"

namespace forge {

namespace {

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;  // of the library, whose state belongs to the process, too
  return mutex;
}

bool set_up_library() {
  H5dont_atexit();
  H5PLset_loading_state(0);
  return true;
}

herr_t keep_first(unsigned, const H5E_error2_t* error, void* text) {
  auto& first = *static_cast<std::string*>(text);
  if (first.empty() && error->desc) first = error->desc;
  return 0;
}

// What libhdf5 says of the innermost failure: of a call of the system "…, errno = 28, error message = '…', …".
std::string cause() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  H5Eclear2(H5E_DEFAULT);
  return text;
}

// The errno in such a text, 0: none.
int errno_in(const std::string& text) {
  constexpr std::string_view key = "errno = ";
  const std::size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + key.size());
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(library_mutex()) {
  static const bool ready = set_up_library();
  static_cast<void>(ready);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hid::Hid(hid_t id, Close close, const char* call, const std::string& file) : Hid(id, close) {
  check_hdf5(id, call, file);
}

Hid::Hid(Hid&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

Hid& Hid::operator=(Hid&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

Hid::~Hid() {
  if (id_ >= 0) close_(id_);
}

void Hid::close(const char* call, const std::string& file) {
  check_hdf5(close_(std::exchange(id_, -1)), call, file);
}

void check_hdf5(long long status, const char* call, const std::string& file) {
  // H5F, H5D, H5G and H5A work on the file, the others in memory.
  if (std::strchr("FDGA", call[2])) io_call(call, file);
  if (status >= 0) return;
  const std::string why = cause();
  if (const int error = errno_in(why); error > 0) throw_io_error(call, file, error);
  throw IoFailed(std::string(call) + " of " + file + " failed" + (why.empty() ? "" : ": " + why));
}

Hid create_file(const std::string& path) {
  const Hid access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "H5Pcreate", path);
  check_hdf5(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), "H5Pset_libver_bounds", path);
  check_hdf5(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "H5Pset_fclose_degree", path);
  const Hid creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "H5Pcreate", path);
  check_hdf5(H5Pset_obj_track_times(creation, 0), "H5Pset_obj_track_times", path);
  return {H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation, access), H5Fclose, "H5Fcreate", path};
}

void make_group_of(hid_t file, const std::string& name, const std::string& path) {
  const std::size_t slash = name.rfind('/');
  if (slash == std::string::npos || slash == 0) return;
  const std::string group = name.substr(0, slash);
  const htri_t exists = H5Lexists(file, group.c_str(), H5P_DEFAULT);
  check_hdf5(exists, "H5Lexists", path);
  if (exists > 0) return;
  const Hid creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "H5Pcreate", path);
  check_hdf5(H5Pset_obj_track_times(creation, 0), "H5Pset_obj_track_times", path);
  Hid id(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Gclose, "H5Gcreate", path);
  id.close("H5Gclose", path);
}

Hid file_type(DType type) {
  const std::pair<DType, hid_t> types[] = {{DType::f64, H5T_IEEE_F64LE},
                                           {DType::f32, H5T_IEEE_F32LE},
                                           {DType::bf16, H5T_IEEE_F32LE},
                                           {DType::i64, H5T_STD_I64LE},
                                           {DType::u8, H5T_STD_U8LE}};
  const auto* like = std::ranges::find(types, type, &std::pair<DType, hid_t>::first);
  if (like == std::end(types)) throw Error("checkpoints hold no " + std::string(name_of(type)));
  Hid id(H5Tcopy(like->second), H5Tclose, "H5Tcopy", "a type");
  if (type == DType::bf16) {
    check_hdf5(H5Tset_fields(id, 15, 7, 8, 0, 7), "H5Tset_fields", "bf16");
    check_hdf5(H5Tset_size(id, 2), "H5Tset_size", "bf16");
    check_hdf5(H5Tset_ebias(id, 127), "H5Tset_ebias", "bf16");
  }
  return id;
}

Hid checked_chunks(const std::vector<hsize_t>& chunk, const std::string& file) {
  Hid list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate", file);
  check_hdf5(H5Pset_chunk(list, static_cast<int>(chunk.size()), chunk.data()), "H5Pset_chunk", file);
  check_hdf5(H5Pset_fletcher32(list), "H5Pset_fletcher32", file);
  check_hdf5(H5Pset_obj_track_times(list, 0), "H5Pset_obj_track_times", file);
  return list;
}

std::string hdf5_version() {
  const Hdf5Lock lock;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

}  // namespace forge
