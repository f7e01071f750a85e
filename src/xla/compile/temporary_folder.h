#pragma once
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ivme::xla {

// For tests: an empty folder, gone with all that is in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "ivme_xla_test.XXXXXX").string();
    path_ = ::mkdtemp(path.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Writes a file below the folder, and the folders it needs.
  std::filesystem::path write(const std::string& name, const std::string& content = "") const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace ivme::xla
