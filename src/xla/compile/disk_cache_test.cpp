#include "xla/compile/disk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>

#include "xla/compile/error_of.h"
#include "xla/compile/temporary_folder.h"

namespace ivme::xla {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string key(int number) { return cache_key({"test", std::to_string(number)}); }

DiskCacheOptions from(std::map<std::string, std::string> variables) {
  return disk_cache_options(
      [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      });
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheOptions options(int64_t bytes = 1 << 20) const {
    return {true, folder.path() / "deep" / "xla", bytes};
  }
  fs::path file_of(const std::string& name) const { return options().folder / (name + ".xla"); }

  // As if the entry had been used that many seconds ago.
  void age(const std::string& name, int seconds) const {
    fs::last_write_time(file_of(name), fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }

  TemporaryFolder folder;
};

TEST_F(DiskCacheTest, what_was_stored_is_found_by_another) {
  const std::string bytes("\0program\n", 9);
  DiskCache(options()).store(key(1), bytes);
  DiskCache other(options());
  EXPECT_EQ(other.find(key(1)), bytes);
  EXPECT_EQ(other.find(key(2)), std::nullopt);
  other.store(key(1), "");
  EXPECT_EQ(other.find(key(1)), "");
}

TEST_F(DiskCacheTest, an_entry_with_any_byte_changed_is_dropped_and_said_once) {
  DiskCache cache(options());
  cache.store(key(1), "program");
  const std::string whole = content_of(file_of(key(1)));
  testing::internal::CaptureStderr();
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 4;
    std::ofstream(file_of(key(1))) << damaged;
    EXPECT_EQ(cache.find(key(1)), std::nullopt) << i;
    EXPECT_FALSE(fs::exists(file_of(key(1)))) << i;
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(file_of(key(1)).string() + " cannot be used"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

TEST_F(DiskCacheTest, an_entry_cut_off_or_too_long_is_dropped) {
  DiskCache cache(options());
  cache.store(key(1), "program");
  const std::string whole = content_of(file_of(key(1)));
  testing::internal::CaptureStderr();
  for (const std::string& damaged :
       {std::string(), whole.substr(0, 20), whole.substr(0, whole.size() - 1), whole + "x"}) {
    std::ofstream(file_of(key(1))) << damaged;
    EXPECT_EQ(cache.find(key(1)), std::nullopt) << damaged.size();
    EXPECT_FALSE(fs::exists(file_of(key(1))));
  }
  testing::internal::GetCapturedStderr();
}

TEST_F(DiskCacheTest, an_entry_under_another_name_is_dropped) {
  DiskCache cache(options());
  cache.store(key(1), "program");
  fs::copy_file(file_of(key(1)), file_of(key(2)));
  testing::internal::CaptureStderr();
  EXPECT_EQ(cache.find(key(2)), std::nullopt);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(cache.find(key(1)), "program");
}

TEST_F(DiskCacheTest, the_least_recently_used_go_first) {
  const std::string bytes(1000, 'p');
  DiskCache cache(options(3500));
  for (int i = 1; i <= 3; ++i) {
    cache.store(key(i), bytes);
    age(key(i), 100 - i);
  }
  EXPECT_TRUE(cache.find(key(1)));  // used again
  cache.store(key(4), bytes);
  EXPECT_TRUE(cache.find(key(1)));
  EXPECT_FALSE(cache.find(key(2)));
  EXPECT_TRUE(cache.find(key(3)));
  EXPECT_TRUE(cache.find(key(4)));
  EXPECT_LE(bytes_in(options().folder), 3500);
}

TEST_F(DiskCacheTest, what_alone_exceeds_the_bound_displaces_nothing) {
  DiskCache cache(options(3500));
  cache.store(key(1), std::string(1000, 'p'));
  cache.store(key(2), std::string(4000, 'p'));
  EXPECT_TRUE(cache.find(key(1)));
  EXPECT_FALSE(cache.find(key(2)));
}

TEST_F(DiskCacheTest, only_its_own_files_are_trimmed) {
  DiskCache cache(options(1500));
  cache.store(key(1), "program");
  const auto notes = folder.write("deep/xla/notes.txt", std::string(4000, 'n'));
  const auto stale = folder.write("deep/xla/." + key(7) + ".4194305.0", "half");
  const auto fresh = folder.write("deep/xla/." + key(8) + ".4194305.0", "half");
  fs::last_write_time(stale, fs::file_time_type::clock::now() - std::chrono::hours(2));
  cache.store(key(2), "program");
  EXPECT_TRUE(fs::exists(notes));
  EXPECT_FALSE(fs::exists(stale)) << "left by a process that was killed";
  EXPECT_TRUE(fs::exists(fresh)) << "perhaps being written by another process";
}

TEST_F(DiskCacheTest, a_folder_that_cannot_be_made_is_said_once) {
  const auto file = folder.write("file");
  DiskCache cache({true, file / "xla", 1 << 20});
  testing::internal::CaptureStderr();
  cache.store(key(1), "program");
  cache.store(key(2), "program");
  EXPECT_EQ(cache.find(key(1)), std::nullopt);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("are not kept in " + (file / "xla").string()));
  EXPECT_THAT(said, HasSubstr("IVME_XLA_CACHE_DIR"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  EXPECT_FALSE(cache.stores());
}

TEST_F(DiskCacheTest, a_disk_that_takes_no_more_leaves_no_half_entry) {
  fs::create_directories(file_of(key(1)) / "in the way");
  DiskCache cache(options());
  testing::internal::CaptureStderr();
  cache.store(key(1), "program");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot be put in place"));
  EXPECT_EQ(std::distance(fs::directory_iterator(options().folder), {}), 1);
}

TEST_F(DiskCacheTest, switched_off_it_keeps_nothing) {
  DiskCacheOptions off = options();
  off.enabled = false;
  DiskCache cache(off);
  cache.store(key(1), "program");
  EXPECT_EQ(cache.find(key(1)), std::nullopt);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// Both write, read and trim the same few entries as fast as they can; a wrong byte or an exception fails the
// child.
TEST_F(DiskCacheTest, processes_share_a_folder) {
  constexpr int processes = 3, rounds = 60, entries = 5;
  std::vector<pid_t> children;
  for (int process = 0; process < processes; ++process) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    DiskCache cache(options(3 * 20000));
    bool right = true;
    for (int round = 0; round < rounds; ++round) {
      const int entry = (round * 7 + process) % entries;
      const std::string bytes(20000 - static_cast<size_t>(entry) * 1000, static_cast<char>('a' + entry));
      cache.store(key(entry), bytes);
      const auto found = cache.find(key(round % entries));
      const auto other = static_cast<char>('a' + round % entries);
      right = right && cache.stores() && (!found || found->find_first_not_of(other) == std::string::npos);
    }
    ::_exit(right ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_LE(bytes_in(options().folder), 4 * 20000);
}

TEST(CacheKey, tells_apart_where_one_part_ends) {
  EXPECT_NE(cache_key({"ab", "c"}), cache_key({"a", "bc"}));
  EXPECT_NE(cache_key({"ab"}), cache_key({"ab", ""}));
  EXPECT_EQ(cache_key({"ab", "c"}), cache_key({"ab", "c"}));
  EXPECT_EQ(cache_key({}), "99aa06d3014798d86001c324468d497f")
      << "XXH3-128 of nothing, from xxhash's documentation";
}

TEST(ProcessorFeatures, are_known_on_this_machine) { EXPECT_FALSE(processor_features().empty()); }

TEST(DiskCacheOptions, follow_the_environment) {
  EXPECT_EQ(from({{"HOME", "/h"}}).folder, "/h/.cache/ivme/xla");
  EXPECT_EQ(from({{"HOME", "/h"}}).bytes, 1073741824);
  EXPECT_EQ(from({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}).folder, "/c/ivme/xla");
  EXPECT_EQ(from({{"XDG_CACHE_HOME", "/c"}, {"IVME_XLA_CACHE_DIR", "/own"}}).folder, "/own");
  EXPECT_TRUE(from({{"HOME", "/h"}}).enabled);
  EXPECT_FALSE(from({{"HOME", "/h"}, {"IVME_XLA_CACHE", "0"}}).enabled);
  EXPECT_FALSE(from({}).enabled);
  EXPECT_EQ(from({{"HOME", "/h"}, {"IVME_XLA_CACHE_BYTES", "5000"}}).bytes, 5000);
  for (const char* bytes : {"1G", "-1", ""})
    EXPECT_THAT(error_of([&] { from({{"HOME", "/h"}, {"IVME_XLA_CACHE_BYTES", bytes}}); }),
                HasSubstr("not a number of bytes"));
}

}  // namespace
}  // namespace ivme::xla
