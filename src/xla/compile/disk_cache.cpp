#include "xla/compile/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>

#include "ivme/error.h"
#include "launch/file_descriptor.h"
#include "support/hash.h"

namespace ivme::xla {
namespace {

namespace fs = std::filesystem;
using launch::FileDescriptor;

constexpr size_t key_digits = 32;
constexpr const char* suffix = ".xla";
constexpr auto temporary_lifetime = std::chrono::hours(1);

struct Head {
  char magic[8] = {'i', 'v', 'm', 'e', ' ', 'x', 'l', 'a'};
  uint64_t format = 1;
  char key[key_digits] = {};
  uint64_t length = 0;
  uint64_t checksum[2] = {};
};
static_assert(sizeof(Head) == 72, "the head has no padding");

Head head_of(const std::string& key, std::string_view bytes) {
  Head head;
  std::memcpy(head.key, key.data(), std::min(key.size(), key_digits));
  head.length = bytes.size();
  const XXH128_hash_t sum = XXH3_128bits(bytes.data(), bytes.size());
  head.checksum[0] = sum.low64;
  head.checksum[1] = sum.high64;
  return head;
}

void say(const std::string& sentence) { std::fprintf(stderr, "ivme: %s\n", sentence.c_str()); }

// The whole file; nothing if it cannot be read. Another process may remove it meanwhile: it stays readable.
std::optional<std::string> read_all(const FileDescriptor& file) {
  struct stat status = {};
  if (!file.open() || ::fstat(file.get(), &status) != 0) return std::nullopt;
  std::string content(static_cast<size_t>(status.st_size), '\0');
  for (size_t done = 0; done < content.size();) {
    const ssize_t count = ::read(file.get(), content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    done += static_cast<size_t>(count);
  }
  return content;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

fs::path temporary_in(const fs::path& folder, const std::string& key) {
  static std::atomic<uint64_t> count{0};
  return folder / ("." + key + "." + std::to_string(::getpid()) + "." + std::to_string(count++));
}

// Writes a new file; 0, or the errno of what failed. What it wrote until then is removed.
int write_file(const fs::path& path, std::string_view head, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return errno;
  const bool written = write_all(file, head) && write_all(file, bytes) && ::fsync(file) == 0;
  int failure = written ? 0 : errno;
  if (::close(file) != 0 && failure == 0) failure = errno;
  if (failure != 0) ::unlink(path.c_str());
  return failure;
}

}  // namespace

DiskCacheOptions disk_cache_options(const ReadVariable& read) {
  DiskCacheOptions options;
  const auto wanted = read("IVME_XLA_CACHE");
  options.enabled = !wanted || is_true("IVME_XLA_CACHE", *wanted);
  if (const auto folder = read("IVME_XLA_CACHE_DIR"))
    options.folder = *folder;
  else if (const auto cache = read("XDG_CACHE_HOME"))
    options.folder = fs::path(*cache) / "ivme" / "xla";
  else if (const auto home = read("HOME"))
    options.folder = fs::path(*home) / ".cache" / "ivme" / "xla";
  else
    options.enabled = false;
  if (const auto bytes = read("IVME_XLA_CACHE_BYTES")) {
    const auto [end, failure] = std::from_chars(bytes->data(), bytes->data() + bytes->size(), options.bytes);
    if (failure != std::errc() || end != bytes->data() + bytes->size() || options.bytes < 0)
      throw Error("The environment says IVME_XLA_CACHE_BYTES=" + *bytes +
                  ", which is not a number of bytes. Set it to one, such as 1073741824, or unset it.");
  }
  return options;
}

std::string cache_key(const std::vector<std::string_view>& parts) {
  std::string text;
  for (const std::string_view part : parts) text.append(std::to_string(part.size())).append(" ").append(part);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return hex16(hash.high64) + hex16(hash.low64);
}

std::string processor_features() {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> kinds;  // big and little cores differ
  const std::set<std::string> names = {"vendor_id", "cpu family", "model",    "model name",
                                       "flags",     "Features",   "CPU part", "isa"};
  for (std::string line; std::getline(file, line);)
    if (names.contains(line.substr(0, line.find_last_not_of(" \t", line.find(':') - 1) + 1)))
      kinds.insert(line);
  std::string text;
  for (const std::string& line : kinds) text += line + "\n";
  return text;
}

DiskCache::DiskCache(DiskCacheOptions options) : options_(std::move(options)) {}

fs::path DiskCache::path_of(const std::string& key) const { return options_.folder / (key + suffix); }

std::optional<std::string> DiskCache::find(const std::string& key) {
  if (!options_.enabled) return std::nullopt;
  const FileDescriptor file(::open(path_of(key).c_str(), O_RDONLY | O_CLOEXEC));
  auto content = read_all(file);
  if (!content) return std::nullopt;
  if (content->size() < sizeof(Head)) {
    drop(key, "it is cut off");
    return std::nullopt;
  }
  std::string bytes = content->substr(sizeof(Head));
  const Head wanted = head_of(key, bytes);
  if (std::memcmp(content->data(), &wanted, sizeof(Head)) != 0) {
    drop(key, "its checksum does not fit its content");
    return std::nullopt;
  }
  ::futimens(file.get(), nullptr);
  return bytes;
}

void DiskCache::store(const std::string& key, std::string_view bytes) {
  if (!stores() || static_cast<int64_t>(bytes.size() + sizeof(Head)) > options_.bytes) return;
  std::error_code failure;
  fs::create_directories(options_.folder, failure);
  if (failure) return stop_storing("the folder cannot be made: " + failure.message());
  const Head head = head_of(key, bytes);
  const fs::path temporary = temporary_in(options_.folder, key);
  const int error = write_file(temporary, {reinterpret_cast<const char*>(&head), sizeof head}, bytes);
  if (error != 0) return stop_storing(std::string("an entry cannot be written: ") + std::strerror(error));
  fs::rename(temporary, path_of(key), failure);
  if (failure) {
    ::unlink(temporary.c_str());
    return stop_storing("an entry cannot be put in place: " + failure.message());
  }
  trim();
}

void DiskCache::drop(const std::string& key, const std::string& reason) {
  ::unlink(path_of(key).c_str());
  if (!said_dropped_.exchange(true))
    say("The compiled program " + path_of(key).string() + " cannot be used: " + reason +
        ". It is removed, and the program is compiled anew.");
}

void DiskCache::stop_storing(const std::string& reason) {
  if (!stopped_.exchange(true))
    say("Compiled programs are not kept in " + options_.folder.string() + ": " + reason +
        ". The next run compiles them again. Set IVME_XLA_CACHE_DIR to another folder, or IVME_XLA_CACHE=0.");
}

void DiskCache::trim() const {
  struct Entry {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code failure;
  for (fs::directory_iterator file(options_.folder, failure), end; !failure && file != end;
       file.increment(failure)) {
    const std::string name = file->path().filename().string();
    std::error_code gone;
    const auto used = file->last_write_time(gone);
    const auto bytes = static_cast<int64_t>(file->file_size(gone));
    if (gone) continue;
    if (name.size() == key_digits + std::strlen(suffix) && name.ends_with(suffix)) {
      entries.push_back({used, bytes, file->path()});
      total += bytes;
    } else if (name.starts_with(".") && name.size() > key_digits + 1 && name[key_digits + 1] == '.' &&
               used + temporary_lifetime < fs::file_time_type::clock::now()) {
      ::unlink(file->path().c_str());  // of a process that was killed
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= options_.bytes) break;
    ::unlink(entry.path.c_str());
    total -= entry.bytes;
  }
}

}  // namespace ivme::xla
