#include "checkpoint/table_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "checkpoint/manifest.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Types of messages in object headers, and what must not stand beside a dataset's.
enum : unsigned {
  dataspace = 0x01,
  link_info = 0x02,
  datatype = 0x03,
  link = 0x06,
  external_files = 0x07,
  layout = 0x08,
  filters = 0x0b,
  attribute = 0x0c,
  continuation = 0x10,
  symbol_table = 0x11,
  attribute_info = 0x15
};
constexpr std::uint64_t undefined = ~std::uint64_t{0};
constexpr std::size_t most_continuations = 64, most_messages = 4096;  // of an object
constexpr unsigned fletcher_filter = 3;
constexpr std::uint64_t checksum_bytes = 4;
constexpr std::uint64_t most_chunk_bytes = 1 << 20;  // as write_table makes them, a row at least

}  // namespace

// Little-endian numbers one behind the other, never behind the end.
class TableFile::Bytes {
 public:
  Bytes(const TableFile& file, std::span<const std::byte> bytes, const std::string& object)
      : file_(file), bytes_(bytes), object_(object) {}

  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    const auto bytes = take(size);
    for (std::size_t i = 0; i < size; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    return value;
  }
  std::span<const std::byte> take(std::uint64_t size) {
    if (size > bytes_.size()) file_.reject(object_, "ends early");
    const auto part = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return part;
  }
  std::string text(std::uint64_t size) {
    const auto bytes = take(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  Bytes part(std::uint64_t size) { return {file_, take(size), object_}; }
  std::size_t left() const { return bytes_.size(); }
  [[noreturn]] void reject(const char* what) const { file_.reject(object_, what); }
  // Throws unless the next bytes are these.
  void expect(const char* signature) {
    if (text(std::strlen(signature)) != signature) file_.reject(object_, "is not stored as forge does");
  }
  void expect(std::uint64_t value, std::size_t size) {
    if (number(size) != value) file_.reject(object_, "is not stored as forge does");
  }

 private:
  const TableFile& file_;
  std::span<const std::byte> bytes_;
  const std::string& object_;
};

void TableFile::reject(const std::string& object, const std::string& what) const {
  throw BadCheckpoint(path_ + ": " + object + " " + what);
}

std::vector<std::byte> TableFile::bytes_at(std::uint64_t offset, std::uint64_t size, const std::string& object) const {
  if (size > size_ || offset > size_ - size) reject(object, "points outside of the file");
  std::vector<std::byte> bytes(size);
  read_at(offset, bytes.data(), bytes.size());
  return bytes;
}

// Within the file.
void TableFile::read_at(std::uint64_t offset, void* to, std::uint64_t bytes) const {
  if (!file_)
    std::memcpy(to, memory_.data() + offset, bytes);
  else
    as_damage([&] { file_->read_at(offset, to, bytes); });
}

TableFile::TableFile(const std::string& path)
    : path_(path),
      file_(as_damage([&] { return FileHandle::open_to_read(path, "manifest"); })),
      size_(as_damage([&] { return file_->size(); })) {
  read_root();
}

TableFile::TableFile(const std::string& path, std::string bytes)
    : path_(path), memory_(std::move(bytes)), size_(memory_.size()) {
  read_root();
}

void TableFile::read_root() {
  const std::string object = "the superblock";
  const auto bytes = bytes_at(0, 48, object);
  Bytes in(*this, bytes, object);
  in.expect("\x89HDF\r\n\x1a\n");
  for (const std::uint64_t value : {3, 8, 8, 0}) in.expect(value, 1);  // version, sizes of offsets and lengths, flags
  in.expect(0, 8);                                                     // base address
  in.expect(undefined, 8);                                             // extension
  in.number(8);                                                        // end of file
  root_ = messages_at(in.number(8), "the root group");
}

void TableFile::add_messages(Bytes in, bool tracked, Messages& messages, std::vector<std::byte>& continuations) const {
  const std::size_t header = tracked ? 6 : 4;
  while (in.left() >= header) {
    Message message;
    message.type = static_cast<unsigned>(in.number(1));
    const std::uint64_t size = in.number(2);
    message.flags = static_cast<unsigned>(in.number(1));
    if (tracked) in.number(2);
    const auto bytes = in.take(size);
    if (message.type == continuation) {
      continuations.insert(continuations.end(), bytes.begin(), bytes.end());
    } else if (message.type != 0) {
      message.bytes.assign(bytes.begin(), bytes.end());
      if (messages.size() == most_messages) in.reject("has more parts than forge writes");
      messages.push_back(std::move(message));
    }
  }
}

TableFile::Messages TableFile::messages_at(std::uint64_t address, const std::string& object) const {
  auto bytes = bytes_at(address, 6, object);
  Bytes prefix(*this, bytes, object);
  prefix.expect("OHDR");
  prefix.expect(2, 1);
  const std::uint64_t flags = prefix.number(1), size_bytes = std::uint64_t{1} << (flags & 3);
  const bool tracked = (flags & 4) != 0;
  const std::uint64_t optional = ((flags & 16) != 0 ? 4 : 0) + ((flags & 32) != 0 ? 16 : 0);
  const auto size_field = bytes_at(address + 6 + optional, size_bytes, object);
  const std::uint64_t size = Bytes(*this, size_field, object).number(size_bytes);
  bytes = bytes_at(address + 6 + optional + size_bytes, size, object);
  Messages messages;
  std::vector<std::byte> continuations;  // address and size, one behind the other
  add_messages(Bytes(*this, bytes, object), tracked, messages, continuations);
  std::uint64_t total = size;
  for (std::size_t at = 0; at < continuations.size(); at += 16) {
    const std::vector<std::byte> next(continuations.begin() + static_cast<std::ptrdiff_t>(at), continuations.end());
    Bytes where(*this, next, object);
    const std::uint64_t offset = where.number(8), length = where.number(8);
    if (at / 16 >= most_continuations || length < 8 || length > size_ - std::min(size_, total))
      reject(object, "is not stored as forge does");
    total += length;
    const auto block = bytes_at(offset, length, object);
    Bytes in(*this, block, object);
    in.expect("OCHK");
    add_messages(in.part(length - 4 - checksum_bytes), tracked, messages, continuations);
  }
  return messages;
}

const TableFile::Message* TableFile::only(const Messages& messages, unsigned type, const std::string& object) const {
  const Message* found = nullptr;
  for (const Message& message : messages) {
    if (message.type != type) continue;
    // A shared message stands elsewhere.
    if (found || (message.flags & 2) != 0) reject(object, "is not stored as forge does");
    found = &message;
  }
  return found;
}

const TableFile::Message& TableFile::needed(const Messages& messages, unsigned type, const std::string& object) const {
  const Message* message = only(messages, type, object);
  if (!message) reject(object, "is not stored as forge does");
  return *message;
}

std::uint64_t TableFile::find_link(const Messages& group, const std::string& name, const std::string& object) const {
  Bytes info(*this, needed(group, link_info, object).bytes, object);
  info.expect(0, 1);
  if ((info.number(1) & 1) != 0) info.number(8);
  info.expect(undefined, 8);  // no heap: all links stand here
  std::uint64_t address = undefined;
  for (const Message& message : group) {
    if (message.type != link) continue;
    if ((message.flags & 2) != 0) reject(object, "is not stored as forge does");
    Bytes in(*this, message.bytes, object);
    in.expect(1, 1);
    const std::uint64_t flags = in.number(1);
    const std::uint64_t kind = (flags & 8) != 0 ? in.number(1) : 0;
    if ((flags & 4) != 0) in.number(8);
    if ((flags & 16) != 0) in.number(1);
    if (in.text(in.number(std::size_t{1} << (flags & 3))) != name) continue;
    if (kind != 0) reject(object, "is no hard link");
    if (address != undefined) reject(object, "stands there twice");
    address = in.number(8);
  }
  return address;
}

std::uint64_t TableFile::linked(const Messages& group, const std::string& name, const std::string& object) const {
  const std::uint64_t address = find_link(group, name, object);
  if (address == undefined) reject(object, "is missing");
  return address;
}

bool TableFile::has(const std::string& path) const {
  Messages group = root_;
  const std::size_t last = path.rfind('/');
  for (std::size_t at = 1; at < last;) {
    const std::size_t end = path.find('/', at);
    group = messages_at(linked(group, path.substr(at, end - at), path), path);
    at = end + 1;
  }
  return find_link(group, path.substr(last + 1), path) != undefined;
}

// A little-endian integer: 8 bytes with sign, or one byte without.
void TableFile::check_type(Bytes in, std::size_t size, const std::string& object) const {
  const std::uint64_t kind = in.number(1), bits = in.number(3), bytes = in.number(4), offset = in.number(2),
                      precision = in.number(2);
  if ((kind & 15) != 0 || kind >> 4 < 1 || kind >> 4 > 3 || bits != (size == 1 ? 0 : 8) || bytes != size ||
      offset != 0 || precision != 8 * size)
    reject(object, "has another type");
}

std::int64_t TableFile::number(const std::string& name) const {
  if (const Message* info = only(root_, attribute_info, name)) {
    Bytes in(*this, info->bytes, name);
    in.expect(0, 1);
    if ((in.number(1) & 1) != 0) in.number(2);
    in.expect(undefined, 8);  // no heap
  }
  const Message* found = nullptr;
  std::vector<std::byte> value;
  for (const Message& message : root_) {
    if (message.type != attribute) continue;
    Bytes in(*this, message.bytes, name);
    in.expect(3, 1);
    in.expect(0, 1);  // neither type nor space is shared
    const std::uint64_t name_bytes = in.number(2), type_bytes = in.number(2), space_bytes = in.number(2);
    in.number(1);
    if (in.text(name_bytes) != name + '\0') continue;
    if (found || (message.flags & 2) != 0) reject(name, "is not stored as forge does");
    found = &message;
    check_type(in.part(type_bytes), sizeof(std::int64_t), name);
    Bytes space = in.part(space_bytes);
    for (const std::uint64_t expected : {2, 0, 0, 0}) space.expect(expected, 1);  // version, a scalar
    const auto bytes = in.take(sizeof(std::int64_t));
    value.assign(bytes.begin(), bytes.end());
  }
  if (!found) reject(name, "is missing");
  return static_cast<std::int64_t>(Bytes(*this, value, name).number(sizeof(std::int64_t)));
}

std::vector<std::uint64_t> TableFile::fixed_array(std::uint64_t address, std::uint64_t count, std::uint64_t stored,
                                                  const std::string& object) const {
  const auto header_bytes = bytes_at(address, 24, object);
  Bytes header(*this, header_bytes, object);
  header.expect("FAHD");
  header.expect(0, 1);
  header.expect(1, 1);  // of chunks that went through filters
  const std::uint64_t entry = header.number(1), page_bits = header.number(1);
  header.expect(count, 8);
  // Larger arrays come in pages: forge's tables have fewer chunks.
  if (entry <= 12 || entry > 20 || page_bits > 62 || count > std::uint64_t{1} << page_bits || count > size_ / entry)
    reject(object, "is not stored as forge does");
  const auto block = bytes_at(header.number(8), 14 + count * entry, object);
  Bytes in(*this, block, object);
  in.expect("FADB");
  in.expect(0, 1);
  in.expect(1, 1);
  in.expect(address, 8);
  std::vector<std::uint64_t> chunks(count);
  for (std::uint64_t& chunk : chunks) {
    chunk = in.number(8);
    in.expect(stored, entry - 12);
    in.expect(0, 4);  // no filter was left out
  }
  return chunks;
}

void TableFile::find_chunks(const Messages& set, std::uint64_t row_bytes, std::size_t size, ChunkIndex& place,
                            const std::string& object) const {
  Bytes in(*this, needed(set, layout, object).bytes, object);
  in.expect(4, 1);
  in.expect(2, 1);  // in chunks
  const std::uint64_t flags = in.number(1), rows = static_cast<std::uint64_t>(place.rows);
  in.expect(3, 1);
  const std::uint64_t width = in.number(1);
  if (width < 1 || width > 8) in.reject("is not stored as forge does");
  const std::uint64_t chunk_rows = in.number(width);
  if (chunk_rows < 1 || chunk_rows > rows || in.number(width) != row_bytes / size || in.number(width) != size ||
      (chunk_rows > 1 && chunk_rows > most_chunk_bytes / row_bytes))
    in.reject("has other extents");
  place.chunk_rows = static_cast<std::int64_t>(chunk_rows);
  const std::uint64_t count = (rows + chunk_rows - 1) / chunk_rows, index = in.number(1),
                      stored = chunk_rows * row_bytes + checksum_bytes;
  if (index == 1 && flags == 2 && count == 1) {
    in.expect(stored, 8);
    in.expect(0, 4);
    place.chunks = {in.number(8)};
    return;
  }
  if (index != 3 || flags != 0) in.reject("is not stored as forge does");
  in.number(1);
  place.chunks = fixed_array(in.number(8), count, stored, object);
}

TableFile::ChunkIndex TableFile::find(const std::string& path, std::int64_t columns, std::size_t size) const {
  Messages set = root_;
  for (std::size_t at = 1; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    set = messages_at(linked(set, path.substr(at, end - at), path), path);
    at = end + 1;
  }
  if (only(set, external_files, path) || only(set, symbol_table, path)) reject(path, "is not stored as forge does");
  check_type(Bytes(*this, needed(set, datatype, path).bytes, path), size, path);
  Bytes pipeline(*this, needed(set, filters, path).bytes, path);
  pipeline.expect(2, 1);
  pipeline.expect(1, 1);
  if (pipeline.number(2) != fletcher_filter) reject(path, "has another filter than Fletcher's checksum");
  Bytes space(*this, needed(set, dataspace, path).bytes, path);
  space.expect(2, 1);
  if (space.number(1) != 2) reject(path, "has not two dimensions");
  const std::uint64_t flags = space.number(1), kind = space.number(1), rows = space.number(8),
                      row_bytes = static_cast<std::uint64_t>(columns) * size;
  if (kind != 1 || space.number(8) != static_cast<std::uint64_t>(columns) || rows == 0 || rows > size_ / row_bytes)
    reject(path, "has other extents");
  if ((flags & 1) != 0 && (space.number(8) != rows || space.number(8) != static_cast<std::uint64_t>(columns)))
    reject(path, "has other extents");
  ChunkIndex place;
  place.rows = static_cast<std::int64_t>(rows);
  find_chunks(set, row_bytes, size, place, path);
  return place;
}

void TableFile::read_chunk(const std::string& path, std::uint64_t chunk, void* to, std::uint64_t bytes) const {
  if (bytes > size_ || chunk > size_ - bytes) reject(path, "points outside of the file");
  read_at(chunk, to, bytes);
}

template <class T>
RowReader<T>::RowReader(const TableFile& file, const std::string& path, std::int64_t columns)
    : file_(file), path_(path), place_(file.find(path, columns, sizeof(T))), columns_(columns) {
  values_.resize(to_size(place_.chunk_rows * columns));
}

template <class T>
const T* RowReader<T>::next() {
  static_assert(std::endian::native == std::endian::little);
  require(left() > 0, "a table is read behind its end");
  const std::int64_t chunk = next_ / place_.chunk_rows, first = chunk * place_.chunk_rows;
  if (next_ == first)
    file_.read_chunk(path_, place_.chunks[to_size(chunk)], values_.data(),
                     static_cast<std::uint64_t>(std::min(place_.chunk_rows, left()) * columns_) * sizeof(T));
  return values_.data() + (next_++ - first) * columns_;
}

template class RowReader<std::int64_t>;
template class RowReader<std::uint8_t>;

}  // namespace forge
