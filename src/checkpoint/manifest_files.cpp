#include "checkpoint/manifest_files.hpp"

#include <exception>
#include <filesystem>
#include <utility>

#include "checkpoint/directory.hpp"
#include "config/file_handle.hpp"
#include "config/text.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// The step in the name of a checkpoint's directory; −1: none.
std::int64_t step_of_directory(const std::string& directory) {
  const std::filesystem::path path = directory;
  return step_of_name(path.has_filename() ? path.filename() : path.parent_path().filename());
}

// A file of tables and its hash, which verify() has found right.
struct Verified {
  std::unique_ptr<TableFile> file;
  Hash hash{};
};

std::string bytes_of_file(const std::string& path) {
  return as_damage([&] {
    const FileHandle file = FileHandle::open_to_read(path, "manifest");
    std::string bytes(file.size(), '\0');
    file.read_at(0, bytes.data(), bytes.size());
    return bytes;
  });
}

// The node's first rank calls verify() and broadcasts the file's bytes, or the error, which every rank then throws.
// Each rank reads a file above `most_handed_out` bytes itself, a part at a time.
template <class Verify>
Verified handed_out(const std::string& path, Communicator& node, Verify verify) {
  constexpr std::uint64_t most_handed_out = std::uint64_t{64} << 20;
  enum : char { handed, too_large, damaged, unread };
  std::string text;
  if (node.rank() == 0) {
    char kind = handed;
    try {
      const Hash hash = verify();
      text.assign(reinterpret_cast<const char*>(hash.data()), hash.size());
      if (as_damage([&] { return FileHandle::open_to_read(path, "manifest").size(); }) <= most_handed_out)
        text += bytes_of_file(path);
      else
        kind = too_large;
    } catch (const BadCheckpoint& error) {
      kind = damaged;
      text = error.what();
    } catch (const std::exception& error) {
      kind = unread;
      text = error.what();
    }
    text += kind;
  }
  node.broadcast_host(text, 0);
  const char kind = text.back();
  text.pop_back();
  if (kind == damaged) throw BadCheckpoint(text);
  if (kind == unread) throw IoFailed(text);
  Verified result;
  std::copy_n(text.begin(), result.hash.size(), result.hash.begin());
  if (kind == too_large) {
    result.file = std::make_unique<TableFile>(path);
  } else {
    text.erase(0, result.hash.size());
    result.file = std::make_unique<TableFile>(path, std::move(text));
  }
  return result;
}

template <class Verify>
Verified verified_file(const std::string& path, Communicator* node, Verify verify) {
  if (node && node->size() > 1) return handed_out(path, *node, verify);
  const Hash hash = verify();
  return {std::make_unique<TableFile>(path), hash};
}

}  // namespace

Hash hash_of_file(const std::string& path) {
  return as_damage([&] {
    const FileHandle file = FileHandle::open_to_read(path, "file");
    Sha256 hash;
    hash.add(file, 0, file.size());
    return hash.finish();
  });
}

Hash verified_manifest(const std::string& directory, Hash (*hash_of)(const std::string& path)) {
  const std::string name = directory + "/" + manifest_hash_name;
  std::string text = as_damage([&] { return read_text_file(name, 256, "the manifest's hash"); });
  // "<hash>  manifest.h5\n", as sha256sum writes and checks it.
  Hash expected;
  if (!read_hex(text.substr(0, 64), expected) || text.substr(64) != std::string("  ") + manifest_name + "\n")
    throw BadCheckpoint(name + " holds no SHA-256 of " + manifest_name);
  const Hash hash = as_damage([&] { return hash_of(directory + "/" + manifest_name); });
  if (hash != expected)
    throw BadCheckpoint(directory + "/" + manifest_name + " has SHA-256 " + hex_of(hash) + ", " + name + " says " +
                        hex_of(expected));
  return hash;
}

ManifestFiles::ManifestFiles(std::string directory, Communicator* node)
    : directory_(std::move(directory)), node_(node) {
  Verified manifest =
      verified_file(directory_ + "/" + manifest_name, node_, [&] { return verified_manifest(directory_); });
  hash_ = manifest.hash;
  in_pieces_ = manifest.file->number("format") == pieces_format;
  if (in_pieces_) {
    root_ = read_root(*manifest.file);
    check_step(root_.facts);
  } else {
    file_ = std::move(manifest.file);
  }
}

void ManifestFiles::check_step(const CheckpointFacts& facts) const {
  if (const std::int64_t named = step_of_directory(directory_); named >= 0 && named != facts.step)
    throw BadCheckpoint(directory_ + " holds step " + std::to_string(facts.step) +
                        ": another checkpoint's files, or it was renamed");
}

Manifest ManifestFiles::without_shards() const {
  Manifest manifest;
  manifest.facts = root_.facts;
  manifest.tensors = root_.tensors;
  return manifest;
}

std::string ManifestFiles::path_of(std::size_t piece) const {
  return directory_ + "/" + piece_name(root_.pieces[piece].number);
}

std::unique_ptr<TableFile> ManifestFiles::verified_piece(std::size_t piece, Communicator* node) const {
  const std::string path = path_of(piece);
  const ManifestPiece& row = root_.pieces[piece];
  const auto verify = [&] {
    const std::uint64_t bytes =
        as_damage([&] { return FileHandle::open_to_read(path, "piece of the manifest").size(); });
    if (bytes != row.bytes)
      throw BadCheckpoint(path + " has " + std::to_string(bytes) + " bytes, manifest.h5 says " +
                          std::to_string(row.bytes));
    if (hash_of_file(path) != row.hash) throw BadCheckpoint(path + " has another SHA-256 than manifest.h5 says");
    return row.hash;
  };
  return verified_file(path, node, verify).file;
}

Manifest ManifestFiles::read_piece(std::size_t piece, const DatasetFilter& wanted) const {
  if (!in_pieces()) {
    Manifest manifest = read_manifest(*file_, wanted);
    check_step(manifest.facts);
    return manifest;
  }
  Manifest manifest = without_shards();
  forge::read_piece(*verified_piece(piece, nullptr), root_, piece, wanted, manifest);
  return manifest;
}

// While a rank waits it holds the rows of its own pieces alone. One that finds a piece's tables wrong stays with the
// others of its node until all pieces have been handed out.
Manifest ManifestFiles::read(const DatasetFilter& wanted) {
  if (!in_pieces()) {
    Manifest manifest = read_piece(0, wanted);
    file_.reset();
    return manifest;
  }
  std::vector<std::int64_t> own(root_.pieces.size(), !wanted.reach);
  for (const PieceReach& reach : root_.reaches)
    if (wanted.reach && wanted.reach(root_.tensors[to_size(reach.tensor)], reach.box)) own[to_size(reach.piece)] = 1;
  std::erase_if(root_.reaches, [&](const PieceReach& reach) { return own[to_size(reach.piece)] == 0; });
  root_.reaches.shrink_to_fit();
  std::vector<std::int64_t> any = own;
  if (node_) node_->max_host(any);
  Manifest manifest = without_shards();
  std::exception_ptr failure;
  for (std::size_t p = 0; p < any.size(); ++p) {
    if (any[p] == 0) continue;
    const auto file = verified_piece(p, node_);
    if (own[p] == 0 || failure) continue;
    try {
      forge::read_piece(*file, root_, p, wanted, manifest);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  root_.reaches = {};
  if (failure) std::rethrow_exception(failure);
  return manifest;
}

}  // namespace forge
