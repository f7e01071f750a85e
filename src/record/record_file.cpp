#include "record/record_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "ivme/error.h"

namespace ivme::record {

RecordFile::RecordFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw Error(
        "The run record was to be written to \"" + path_ +
        "\", but that file cannot be opened: " + std::strerror(errno) +
        ". Create its folder, or give IVME_RECORD (or the option .record) a file that can be written.");
}

RecordFile::~RecordFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RecordFile::flush() {
  const std::string block = std::exchange(pending_, {});
  std::size_t written = 0;
  while (descriptor_ >= 0 && written < block.size()) {
    const ssize_t count = ::write(descriptor_, block.data() + written, block.size() - written);
    if (count >= 0) {
      written += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      const std::string reason = std::strerror(errno);
      const std::size_t whole = std::string_view(block).substr(0, written).rfind('\n') + 1;
      const off_t end = ::lseek(descriptor_, 0, SEEK_END) - static_cast<off_t>(written - whole);
      [[maybe_unused]] const int cut = ::ftruncate(descriptor_, end);
      ::close(std::exchange(descriptor_, -1));
      throw Error("The run record \"" + path_ + "\" was to be continued, but writing failed: " + reason +
                  ". It ends here; free some space or give IVME_RECORD another place.");
    }
  }
}

}  // namespace ivme::record
