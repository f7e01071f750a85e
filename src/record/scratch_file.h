#pragma once
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ivme::record {

// For tests: the name of a file in a folder of its own, which is deleted in the end.
class ScratchFile {
 public:
  ScratchFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ivme-record-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ScratchFile() { std::filesystem::remove_all(folder_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::string path() const { return (folder_ / "run.jsonl").string(); }
  std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace ivme::record
