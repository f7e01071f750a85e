#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "process/environment.h"

namespace ivme::xla {

struct DiskCacheOptions {
  bool enabled = true;
  std::filesystem::path folder{};
  int64_t bytes = int64_t{1} << 30;  // all entries together stay below; those not used for longest go first
};

// IVME_XLA_CACHE=0 turns it off; IVME_XLA_CACHE_DIR is the folder, else $XDG_CACHE_HOME/ivme/xla, else
// ~/.cache/ivme/xla (without HOME: off); IVME_XLA_CACHE_BYTES is the bound. Throws Error for what is no
// number.
DiskCacheOptions disk_cache_options(const ReadVariable& read = read_environment);

// 32 hexadecimal digits: the 128-bit XXH3 of the parts, each preceded by its length.
std::string cache_key(const std::vector<std::string_view>& parts);

// What this machine's processor is and can do, as the kernel says it: a program compiled for it may use all
// of that.
std::string processor_features();

// Compiled programs on disk, one file each, shared by all processes of the user. An entry has a head (magic,
// format, key, length, checksum) and is put in place whole, so a reader sees all of it or nothing. Trouble
// with the disk never stops the program: it is said on stderr, once, and the program is compiled instead. Any
// thread, several at once.
class DiskCache {
 public:
  explicit DiskCache(DiskCacheOptions options);

  // The bytes that were stored, which now count as just used. An entry that is damaged is removed and counts
  // as absent.
  std::optional<std::string> find(const std::string& key);
  // Then trims the folder to the bound. What alone exceeds the bound is not stored.
  void store(const std::string& key, std::string_view bytes);
  // Removes an entry that cannot be used, and says why: "its checksum is wrong".
  void drop(const std::string& key, const std::string& reason);
  // From now on this process stores nothing, and says why: "the disk is full".
  void stop_storing(const std::string& reason);

  bool stores() const { return options_.enabled && !stopped_; }

 private:
  std::filesystem::path path_of(const std::string& key) const;
  void trim() const;

  DiskCacheOptions options_;
  std::atomic<bool> stopped_{false}, said_dropped_{false};
};

}  // namespace ivme::xla
