#pragma once
#include <string>

namespace ivme::record {

// A text file that always holds whole lines: what is appended is gathered and written in blocks, and a block
// that could not be written whole is cut off again. Lines that were not flushed die with the object.
class RecordFile {
 public:
  // Creates or truncates. Throws ivme::Error if that cannot be.
  explicit RecordFile(std::string path);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  void append(const std::string& lines) { pending_ += lines; }

  // Throws ivme::Error if the file cannot be written (a full disk); later lines are then dropped in silence.
  void flush();

 private:
  std::string path_;
  std::string pending_;
  int descriptor_ = -1;
};

}  // namespace ivme::record
