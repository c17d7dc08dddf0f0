#include "text/token_writer.hpp"

#include <array>
#include <cstdio>
#include <vector>

#include "config/output_file.hpp"
#include "core/error.hpp"

namespace forge {

namespace {

constexpr std::size_t llm_c_header_bytes = 1024;
constexpr std::size_t flushed_bytes = 1 << 18;

// A file that is written from front to back, and removed unless it is committed.
class BufferedFile {
 public:
  BufferedFile(const std::string& path, std::size_t start) : file_(path), written_(start) {}

  template <class T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    buffer_.insert(buffer_.end(), bytes, bytes + sizeof value);
    if (buffer_.size() >= flushed_bytes) flush();
  }
  void put_text(const std::string& text) {
    for (const char c : text) put(c);
  }
  // In the place that `start` has left free.
  void put_front(const void* bytes, std::size_t count) { file_.file().write_at(0, bytes, count); }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.file().write_at(written_, buffer_.data(), buffer_.size());
    written_ += buffer_.size();
    buffer_.clear();
  }

  OutputFile file_;
  std::uint64_t written_;
  std::vector<char> buffer_;
};

class FileTokenWriter final : public TokenWriter {
 public:
  FileTokenWriter(const std::string& path, TokenFormat format, std::int64_t vocabulary)
      : path_(path),
        format_(format),
        vocabulary_(vocabulary),
        narrow_(vocabulary <= 65536),
        tokens_file_(path, format == TokenFormat::npy     ? npy_header_bytes
                           : format == TokenFormat::llm_c ? llm_c_header_bytes
                                                          : 0) {}

  void append(std::span<const std::int32_t> ids) override {
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocabulary_)
        throw BadInput(path_ + ": token " + std::to_string(tokens_) + " is " + std::to_string(id) +
                       ", outside the vocabulary of " + std::to_string(vocabulary_));
      narrow_ ? tokens_file_.put(static_cast<std::uint16_t>(id)) : tokens_file_.put(static_cast<std::uint32_t>(id));
      ++tokens_;
    }
    if (indexed() && tokens_ - ended_ > INT32_MAX)
      throw BadInput(path_ + ": a document of more than 2147483647 tokens, which an index can't hold");
  }
  void end_document() override {
    if (tokens_ > ended_ && indexed()) lengths_.push_back(static_cast<std::int32_t>(tokens_ - ended_));
    ended_ = tokens_;
  }
  void finish() override {
    end_document();
    if (tokens_ == 0) throw BadInput(path_ + ": no token is to be written");
    switch (format_) {
      case TokenFormat::raw:
        return tokens_file_.commit();
      case TokenFormat::npy:
        return finish_npy();
      case TokenFormat::llm_c:
        return finish_llm_c();
      case TokenFormat::megatron:
        return finish_megatron();
      case TokenFormat::ds:
        return finish_ds();
    }
  }

 private:
  bool indexed() const { return format_ == TokenFormat::megatron || format_ == TokenFormat::ds; }
  void finish_npy() {
    const std::string text = npy_header(static_cast<std::uint64_t>(tokens_), !narrow_);
    tokens_file_.put_front(text.data(), text.size());
    tokens_file_.commit();
  }
  void finish_llm_c() {
    if (tokens_ > INT32_MAX)
      throw BadInput(path_ + ": " + std::to_string(tokens_) + " tokens; a file of llm.c holds at most 2147483647");
    std::array<std::int32_t, 256> head{narrow_ ? 20240520 : 20240801, narrow_ ? 1 : 7,
                                       static_cast<std::int32_t>(tokens_)};
    tokens_file_.put_front(head.data(), sizeof head);
    tokens_file_.commit();
  }
  void finish_megatron() {
    const std::string index = path_.substr(0, path_.size() - 4) + ".idx";
    BufferedFile out(index, 0);
    const auto sequences = static_cast<std::int64_t>(lengths_.size());
    out.put_text(std::string("MMIDIDX\0\0", megatron_magic_bytes));
    out.put(std::uint64_t{1});
    out.put(static_cast<std::uint8_t>(narrow_ ? 8 : 4));
    out.put(sequences);
    out.put(sequences + 1);
    for (const std::int32_t length : lengths_) out.put(length);
    std::int64_t offset = 0;
    for (const std::int32_t length : lengths_) {
      out.put(offset);
      offset += length * std::int64_t{narrow_ ? 2 : 4};
    }
    for (std::int64_t d = 0; d <= sequences; ++d) out.put(d);
    std::remove(index.c_str());  // it would belong to older tokens
    tokens_file_.commit();
    out.commit();
  }
  void finish_ds() {
    BufferedFile index(path_ + ".index", 0), metadata(path_ + ".metadata", 0);
    std::int64_t end = 0;
    for (const std::int32_t length : lengths_) index.put(end += length);
    metadata.put_text(std::string("forge|") + (narrow_ ? "2" : "4") + "\n" + std::to_string(tokens_) + "\n" +
                      std::to_string(tokens_) + "\n");
    std::remove((path_ + ".index").c_str());
    std::remove((path_ + ".metadata").c_str());
    tokens_file_.commit();
    metadata.commit();
    index.commit();
  }

  std::string path_;
  TokenFormat format_;
  std::int64_t vocabulary_;
  bool narrow_;
  BufferedFile tokens_file_;
  std::vector<std::int32_t> lengths_;  // of documents
  std::int64_t tokens_ = 0, ended_ = 0;
};

}  // namespace

std::string npy_header(std::uint64_t tokens, bool wide) {
  std::string header("\x93NUMPY\x01\x00\x76\x00", 10);
  header += std::string("{'descr': '") + (wide ? "<u4" : "<u2") + "', 'fortran_order': False, 'shape': (" +
            std::to_string(tokens) + ",), }";
  header.resize(npy_header_bytes - 1, ' ');
  return header + '\n';
}

std::unique_ptr<TokenWriter> TokenWriter::open(const std::string& path, TokenFormat format, std::int64_t vocabulary) {
  const auto wrong = [&](const char* legal) {
    throw BadInput(path + ": no name for a " + std::string(name_of(format)) + " file; legal: " + legal);
  };
  if (format == TokenFormat::npy && !path.ends_with(".npy")) wrong("one that ends in .npy");
  if (format == TokenFormat::ds && !path.ends_with(".ds")) wrong("one that ends in .ds");
  if (format == TokenFormat::megatron && !path.ends_with(".bin")) wrong("one that ends in .bin");
  if ((format == TokenFormat::raw || format == TokenFormat::llm_c) &&
      (path.ends_with(".npy") || path.ends_with(".idx") || path.ends_with(".ds")))
    wrong("one that doesn't end in .npy, .idx or .ds");
  if (vocabulary < 1 || vocabulary > std::int64_t{1} << 31)
    throw BadInput("a vocabulary of " + std::to_string(vocabulary) + "; legal: 1 to 2147483648");
  return std::make_unique<FileTokenWriter>(path, format, vocabulary);
}

}  // namespace forge
