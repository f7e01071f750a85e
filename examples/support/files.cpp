#include "support/files.h"

#include <ATen/ops/empty.h>
#include <zlib.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "ivme/error.h"

namespace examples {
namespace {

namespace fs = std::filesystem;
constexpr int64_t largest = 1 << 30;  // bytes

class GzipFile {
 public:
  explicit GzipFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_)
      throw ivme::Error(path + " cannot be read: " + std::strerror(errno) +
                        ". Give the folder that holds the data with --data DIR.");
    gzbuffer(file_.get(), 1 << 17);
  }
  // Up to `size` bytes; fewer only at the end.
  int64_t read(void* target, int64_t size) {
    const int got = gzread(file_.get(), target, static_cast<unsigned>(size));
    int code = Z_OK;
    const std::string reason = gzerror(file_.get(), &code);
    if (got < size && code != Z_OK)
      throw ivme::Error(path_ + " cannot be unpacked: " + reason +
                        ". It is damaged or cut short; get it anew.");
    return got;
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

int64_t big_endian(const unsigned char* bytes) {
  return int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

}  // namespace

std::string package_folder(const std::string& given, const std::string& name) {
  if (!given.empty()) return given;
  const std::string installed = "/usr/share/datasets/" + name;
  const std::string unpacked = EXAMPLES_SOURCE_TREE "/.deps" + installed;
  return !fs::exists(installed) && fs::exists(unpacked) ? unpacked : installed;
}

std::string repository_folder(const std::string& given) {
  return given.empty() ? EXAMPLES_SOURCE_TREE "/data" : given;
}

std::string read_text(const std::string& path) {
  GzipFile file(path);
  std::string text;
  for (size_t size = 0;; size = text.size()) {
    text.resize(size + (1 << 16));
    const int64_t got = file.read(text.data() + size, 1 << 16);
    text.resize(size + got);
    if (got < 1 << 16) return text;
  }
}

at::Tensor read_idx(const std::string& path, int64_t dimensions) {
  GzipFile file(path);
  unsigned char header[4 + 4 * 8] = {};
  const int64_t header_size = 4 + 4 * dimensions;
  const int64_t got = file.read(header, header_size);
  if (got >= 4 && big_endian(header) != 0x800 + dimensions) {
    char magic[16];
    std::snprintf(magic, sizeof magic, "0x%08llx", static_cast<unsigned long long>(big_endian(header)));
    throw ivme::Error(path + " should be an idx file of bytes with " + std::to_string(dimensions) +
                      " dimensions, but its magic number is " + magic +
                      ". Give the folder of the right files with --data DIR.");
  }
  if (got < header_size) throw ivme::Error(path + " ends within the header of an idx file. Get it anew.");
  std::vector<int64_t> shape;
  int64_t bytes = 1;
  for (int64_t i = 0; i < dimensions; ++i) {
    shape.push_back(big_endian(header + 4 + 4 * i));
    if (shape.back() > 0 && bytes > largest / shape.back())
      throw ivme::Error(path + " claims to hold more than 1 GiB. Its header is damaged; get it anew.");
    bytes *= shape.back();
  }
  if (bytes == 0)
    throw ivme::Error(path + " holds no samples, and there is nothing to learn from none. Get it anew.");
  at::Tensor values = at::empty(shape, at::kByte);
  const int64_t read = file.read(values.mutable_data_ptr<uint8_t>(), bytes);
  if (read < bytes)
    throw ivme::Error(path + " should hold " + std::to_string(bytes) +
                      " bytes after its header, but ends after " + std::to_string(read) +
                      ". It is cut short; get it anew.");
  return values;
}

at::Tensor read_csv(const std::string& path, int64_t columns) {
  const std::string text = read_text(path);
  std::vector<uint8_t> values;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    uint8_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    values.push_back(value);
    const bool line_full = values.size() % columns == 0;
    if (error != std::errc() || (next < end ? *next != (line_full ? '\n' : ',') : !line_full))
      throw ivme::Error(path + ", line " + std::to_string((values.size() - 1) / columns + 1) +
                        ", should hold " + std::to_string(columns) +
                        " numbers from 0 to 255 with commas between, and does not. Get it anew.");
    at = next + 1;
  }
  if (values.empty())
    throw ivme::Error(path + " holds no samples, and there is nothing to learn from none. Get it anew.");
  at::Tensor table = at::empty({static_cast<int64_t>(values.size()) / columns, columns}, at::kByte);
  std::memcpy(table.mutable_data_ptr<uint8_t>(), values.data(), values.size());
  return table;
}

void write_raw(const std::string& path, const std::vector<at::Tensor>& tensors) {
  std::ofstream file(path, std::ios::binary);
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor values = tensor.detach().cpu().contiguous();
    file.write(static_cast<const char*>(values.const_data_ptr()),
               static_cast<std::streamsize>(values.nbytes()));
  }
  if (!file.flush())
    throw ivme::Error(path + " cannot be written: " + std::strerror(errno) + ". Give another file.");
}

}  // namespace examples
