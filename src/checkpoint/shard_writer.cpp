#include "checkpoint/shard_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "checkpoint/hdf5.hpp"
#include "checkpoint/tensor_parts.hpp"
#include "config/file_handle.hpp"
#include "core/faults.hpp"
#include "core/file_errors.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

void sync_path(const std::string& path, int flags) {
  io_call("fsync", path);
  const int descriptor = tried([&] { return ::open(path.c_str(), flags | O_CLOEXEC); });
  if (descriptor < 0) throw_io_error("open", path, errno);
  const int status = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some network file systems have no fsync of directories and say EINVAL.
  if (status != 0 && !((flags & O_DIRECTORY) != 0 && error == EINVAL)) throw_io_error("fsync", path, error);
}

// Tells the kernel now and then to begin with what was written, so that the disk works while the next chunks are
// hashed.
class EarlyWriting {
 public:
  EarlyWriting(const std::string& path, Heartbeat* heartbeat)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), heartbeat_(heartbeat) {}
  ~EarlyWriting() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  EarlyWriting(const EarlyWriting&) = delete;
  EarlyWriting& operator=(const EarlyWriting&) = delete;

  // A hint: what fails here, fsync will tell.
  void written(std::size_t bytes) {
    constexpr std::size_t at_once = std::size_t{16} << 20;
    if (heartbeat_) heartbeat_->beat();
    bytes_ += bytes;
    if (bytes_ < at_once) return;
    bytes_ = 0;
#ifdef SYNC_FILE_RANGE_WRITE
    if (descriptor_ >= 0) ::sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE);
#endif
  }

 private:
  int descriptor_;
  Heartbeat* heartbeat_;
  std::size_t bytes_ = 0;
};

// Memory that serves all tensors of a shard.
struct ShardBuffers {
  std::vector<std::byte> chunk, whole, part;
  // At least so many bytes, of any values.
  static std::byte* room(std::vector<std::byte>& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
    return buffer.data();
  }
};

// Fills one dataset, chunk by chunk, with bytes that come in order.
class DatasetWriter {
 public:
  DatasetWriter(hid_t file, const std::string& path, const StoredTensor& tensor, StoredDataset& dataset,
                std::vector<std::byte>& buffer, EarlyWriting& early)
      : path_(path),
        dataset_(dataset),
        early_(early),
        size_(to_size(dataset.chunk_elements) * size_of(tensor.type)),
        data_(ShardBuffers::room(buffer, size_ + checksum_bytes)) {
    const auto chunk = static_cast<hsize_t>(dataset.chunk_elements), elements = static_cast<hsize_t>(dataset.elements);
    const Hid list = checked_chunks({chunk}, path);
    make_group_of(file, tensor.name, path);
    const Hid space(H5Screate_simple(1, &elements, nullptr), H5Sclose, "H5Screate", path);
    id_ = Hid(H5Dcreate2(file, tensor.name.c_str(), file_type(tensor.type), space, H5P_DEFAULT, list, H5P_DEFAULT),
              H5Dclose, "H5Dcreate", path);
  }

  void add(const std::byte* data, std::size_t bytes, const CopyToHost& copy) {
    while (bytes > 0) {
      const std::size_t n = std::min(bytes, size_ - filled_);
      copy(data_ + filled_, data, n);
      filled_ += n;
      data += n;
      bytes -= n;
      if (filled_ == size_) write_chunk();
    }
  }

  void finish() {
    if (filled_ > 0) {
      std::memset(data_ + filled_, 0, size_ - filled_);
      write_chunk();
    }
    id_.close("H5Dclose", path_);
  }

 private:
  static constexpr std::size_t checksum_bytes = 4;

  void write_chunk() {
    const std::uint32_t sum = fletcher32({data_, size_});
    for (std::size_t i = 0; i < checksum_bytes; ++i) data_[size_ + i] = static_cast<std::byte>(sum >> (8 * i));
    const std::span<const std::byte> chunk(data_, size_ + checksum_bytes);
    const hsize_t first = dataset_.chunks.size() * static_cast<hsize_t>(dataset_.chunk_elements);
    check_hdf5(H5Dwrite_chunk(id_, H5P_DEFAULT, 0, &first, chunk.size(), chunk.data()), "H5Dwrite_chunk", path_);
    unsigned filters = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t stored = 0;
    check_hdf5(H5Dget_chunk_info_by_coord(id_, &first, &filters, &address, &stored), "H5Dget_chunk_info", path_);
    require(filters == 0 && address != HADDR_UNDEF && stored == chunk.size(), "a chunk has no place in its file");
    dataset_.chunks.push_back({address, stored, sha256(chunk)});
    filled_ = 0;
    early_.written(chunk.size());
  }

  std::string path_;
  StoredDataset& dataset_;
  EarlyWriting& early_;
  std::size_t size_, filled_ = 0;  // bytes of a chunk without its checksum, of the one that is being filled
  std::byte* data_;
  Hid id_;
};

void write_tensor(hid_t file, const std::string& path, const StateTensor& tensor, const CopyToHost& copy,
                  const ShardOptions& options, ShardBuffers& buffers, EarlyWriting& early, ShardIndex& index) {
  const std::size_t size = size_of(tensor.type);
  StoredDataset dataset;
  dataset.tensor = static_cast<std::int64_t>(index.tensors.size());
  for (const StatePiece& piece : tensor.pieces)
    for (const Box& box : strips_of(piece.box, tensor.strip)) {
      dataset.pieces.push_back({box, dataset.elements});
      dataset.elements += box.size();
    }
  if (dataset.elements == 0) return;
  dataset.chunk_elements = chunk_elements(dataset.pieces, size, tensor.strip > 0, options);
  index.tensors.push_back({tensor.name, tensor.type, tensor.shape});
  DatasetWriter writer(file, path, index.tensors.back(), dataset, buffers.chunk, early);
  const CopyToHost from_host = [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); };
  for (const StatePiece& piece : tensor.pieces) {
    const auto bytes = [size](const Box& box) { return to_size(box.size()) * size; };
    const std::vector<Box> strips = strips_of(piece.box, tensor.strip);
    if (strips.size() == 1) {
      writer.add(piece.data, bytes(piece.box), copy);
      continue;
    }
    std::byte* whole = ShardBuffers::room(buffers.whole, bytes(piece.box));
    copy(whole, piece.data, bytes(piece.box));
    for (const Box& box : strips) {
      std::byte* part = ShardBuffers::room(buffers.part, bytes(box));
      copy_part(box, piece.box, whole, box, part, size);
      writer.add(part, bytes(box), from_host);
    }
  }
  writer.finish();
  index.datasets.push_back(std::move(dataset));
}

// Elements of an eighth of a box's rows, or of a fourth, a half, all.
std::int64_t eighth_of_rows(const Box& box) {
  for (const std::int64_t rows : box.extent) {
    if (rows == 1) continue;
    for (const std::int64_t parts : {8, 4, 2})
      if (rows % parts == 0) return box.size() / parts;
    break;
  }
  return box.size();
}

}  // namespace

ShardOptions few_chunks(ShardOptions options, std::size_t state_bytes) {
  constexpr std::size_t most_chunks = std::size_t{1} << 24;
  options.least_bytes = std::max(options.least_bytes, state_bytes / most_chunks);
  options.most_bytes = std::max(options.most_bytes, options.least_bytes);
  return options;
}

std::int64_t chunk_elements(const std::vector<StoredPiece>& pieces, std::size_t element_bytes, bool strips,
                            const ShardOptions& options) {
  std::int64_t elements = 0, grain = 0;
  for (const StoredPiece& piece : pieces) {
    elements += piece.box.size();
    grain = std::gcd(grain, strips ? piece.box.size() : eighth_of_rows(piece.box));
  }
  const std::size_t bytes = to_size(elements) * element_bytes;
  const std::size_t wanted = std::clamp(bytes / (strips ? options.strip_parts : options.parts),
                                        std::min(options.least_bytes, options.most_bytes), options.most_bytes);
  const auto most = std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted / element_bytes));
  if (elements <= most) return elements;
  for (std::int64_t n = (grain + most - 1) / most; n <= 2 * grain / most; ++n)
    if (grain % n == 0) return grain / n;
  // Of equal size, so that hardly any element is padding.
  const std::int64_t chunks = (elements + most - 1) / most;
  return (elements + chunks - 1) / chunks;
}

void sync_file(const std::string& path) {
  sync_path(path, O_RDONLY);
}

void sync_directory(const std::string& path) {
  sync_path(path, O_RDONLY | O_DIRECTORY);
}

Hash hash_of_rest(const std::string& path, const std::vector<const StoredDataset*>& datasets, std::uint64_t bytes) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> chunks;
  for (const StoredDataset* dataset : datasets)
    for (const StoredChunk& chunk : dataset->chunks) chunks.emplace_back(chunk.offset, chunk.bytes);
  std::sort(chunks.begin(), chunks.end());
  chunks.emplace_back(bytes, 0);
  const FileHandle file = FileHandle::open_to_read(path, "shard");
  Sha256 hash;
  std::uint64_t at = 0;
  for (const auto& [offset, length] : chunks) {
    hash.add(file, at, offset);
    at = offset + length;
  }
  return hash.finish();
}

ShardIndex write_shard(const std::string& directory, std::int64_t number, const std::vector<StateTensor>& tensors,
                       const CopyToHost& copy, const ShardOptions& options) {
  ShardIndex index;
  index.shard.number = number;
  if (bytes_of(tensors) == 0) return index;
  const std::string path = directory + "/" + shard_name(number);
  {
    const Hdf5Lock lock;
    Hid file = create_file(path);
    EarlyWriting early(path, options.heartbeat);
    ShardBuffers buffers;
    for (const StateTensor& tensor : tensors) write_tensor(file, path, tensor, copy, options, buffers, early, index);
    check_hdf5(H5Fflush(file, H5F_SCOPE_GLOBAL), "H5Fflush", path);
    file.close("H5Fclose", path);
  }
  if (options.heartbeat) FileHandle::open_to_read(path, "shard").write_back(*options.heartbeat);
  sync_file(path);
  index.shard.bytes = FileHandle::open_to_read(path, "shard").size();
  std::vector<const StoredDataset*> datasets;
  for (const StoredDataset& dataset : index.datasets) datasets.push_back(&dataset);
  index.shard.rest = hash_of_rest(path, datasets, index.shard.bytes);
  return index;
}

}  // namespace forge
