#pragma once

#include <cstdint>
#include <string>

namespace forge {

// Writes all of `text` to the file's descriptor; throws IoFailed.
void write_all(int descriptor, const std::string& text, const std::string& file);

// A file that only grows. Every text is one call of write(2), so that a killed job leaves whole lines.
class LogFile {
 public:
  LogFile() = default;
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Throws IoFailed, as all below; BadInput where the name is a link, a device or a pipe.
  void open(const std::string& path);
  // Text that can't be written waits and goes first the next time, without an error: the disk may be full for a while.
  void keep_what_fails() { keeps_ = true; }
  void write(const std::string& text);
  // Forces the text to the disk; beside write(), of any thread. After `keep_what_fails()` it throws nothing.
  void sync() const;
  // Whether the file is there still, under its name.
  bool has_name() const;
  // Whether something waits, behind another try.
  bool waits() {
    try_to_write();
    return !waiting_.empty();
  }
  // Tries again; throws where something waits still.
  void finish();
  // News for a person since the last call: writing has begun to fail, or works again. "": nothing.
  std::string take_news();

 private:
  void try_to_write();  // the waiting text

  std::string path_, waiting_, failure_, news_;
  int descriptor_ = -1;
  bool keeps_ = false;
  std::uint64_t lost_ = 0;  // bytes that found no room in `waiting_`
};

}  // namespace forge
