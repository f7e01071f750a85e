#include "xla/compile/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "xla/compile/error_of.h"
#include "xla/compile/temporary_folder.h"

namespace ivme::xla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string cpu_file = "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", tpu_file = "libtpu/libtpu.so";

class PluginSearchTest : public testing::Test {
 protected:
  PluginSearch search(std::map<std::string, std::string> variables = {}) const {
    const auto read = [variables =
                           std::move(variables)](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    return {read, {folder.path() / "first", folder.path() / "second"}, folder.path() / "dev"};
  }

  TemporaryFolder folder;
};

TEST_F(PluginSearchTest, the_first_folder_with_the_wheel_wins) {
  const auto second = folder.write("second/" + cpu_file);
  EXPECT_EQ(find_plugin(search()).path, second);
  const auto first = folder.write("first/" + cpu_file);
  EXPECT_EQ(find_plugin(search()).path, first);
  EXPECT_EQ(find_plugin(search()).platform, Platform::cpu);
}

TEST_F(PluginSearchTest, pjrt_device_chooses_the_platform_in_any_case) {
  folder.write("first/" + cpu_file);
  const auto tpu = folder.write("second/" + tpu_file);
  EXPECT_EQ(find_plugin(search({{"PJRT_DEVICE", "tpu"}})).path, tpu);
  EXPECT_EQ(find_plugin(search({{"PJRT_DEVICE", "TPU"}})).platform, Platform::tpu);
  EXPECT_EQ(find_plugin(search({{"PJRT_DEVICE", "Cpu"}})).platform, Platform::cpu);
}

TEST_F(PluginSearchTest, a_tpu_with_libtpu_is_taken_when_nothing_is_chosen) {
  folder.write("first/" + cpu_file);
  folder.write("first/" + tpu_file);
  EXPECT_EQ(find_plugin(search()).platform, Platform::cpu);
  folder.write("dev/vfio/vfio");
  EXPECT_EQ(find_plugin(search()).platform, Platform::cpu);
  folder.write("dev/vfio/0");
  EXPECT_EQ(find_plugin(search()).platform, Platform::tpu);
}

TEST_F(PluginSearchTest, a_path_from_the_environment_comes_first) {
  folder.write("first/" + cpu_file);
  folder.write("first/" + tpu_file);
  const auto own = folder.write("own/my_tpu.so"), other = folder.write("own/mine.so");
  const Plugin plugin = find_plugin(search({{"IVME_PJRT_PLUGIN", own}}));
  EXPECT_EQ(plugin.path, own);
  EXPECT_EQ(plugin.platform, Platform::tpu);
  EXPECT_EQ(find_plugin(search({{"IVME_PJRT_PLUGIN", own}, {"PJRT_DEVICE", "CPU"}})).platform, Platform::cpu);
  EXPECT_EQ(find_plugin(search({{"TPU_LIBRARY_PATH", other}, {"PJRT_DEVICE", "TPU"}})).path, other);
  EXPECT_EQ(find_plugin(search({{"TPU_LIBRARY_PATH", other}})).path, folder.path() / "first" / cpu_file);
}

TEST_F(PluginSearchTest, what_is_wrong_is_named) {
  EXPECT_THAT(error_of([&] { find_plugin(search({{"PJRT_DEVICE", "TPV"}})); }),
              AllOf(HasSubstr("PJRT_DEVICE=TPV"), HasSubstr("did you mean 'TPU'")));
  EXPECT_THAT(error_of([&] { find_plugin(search({{"IVME_PJRT_PLUGIN", "/nowhere/p.so"}})); }),
              HasSubstr("IVME_PJRT_PLUGIN=/nowhere/p.so, but there is no such file"));
  EXPECT_THAT(
      error_of([&] { find_plugin(search({{"TPU_LIBRARY_PATH", "/nowhere"}, {"PJRT_DEVICE", "TPU"}})); }),
      HasSubstr("TPU_LIBRARY_PATH=/nowhere, but there is no such file"));
}

TEST_F(PluginSearchTest, nothing_found_says_where_it_looked_and_what_to_install) {
  EXPECT_THAT(
      error_of([&] { find_plugin(search()); }),
      AllOf(HasSubstr((folder.path() / "first").string()), HasSubstr((folder.path() / "second").string()),
            HasSubstr("pip install --no-deps xla-cpu-pjrt")));
  EXPECT_THAT(error_of([&] { find_plugin(search({{"PJRT_DEVICE", "TPU"}})); }),
              AllOf(HasSubstr("TPU_LIBRARY_PATH"), HasSubstr("pip install --no-deps libtpu")));
}

TEST_F(PluginSearchTest, a_folder_that_two_ways_lead_to_is_told_once) {
  PluginSearch where = search();
  where.site_packages.push_back(where.site_packages[0]);
  where.site_packages.push_back(where.site_packages[1] / ".." / where.site_packages[0].filename());
  const std::string message = error_of([&] { find_plugin(where); });
  const std::string first = where.site_packages[0].string(), second = where.site_packages[1].string();
  EXPECT_THAT(message, HasSubstr("there is none in " + first + ", " + second + ". Install"));
}

TEST_F(PluginSearchTest, only_numbered_device_files_are_a_tpu) {
  const auto dev = folder.path() / "dev";
  EXPECT_FALSE(has_tpu(dev));
  folder.write("dev/accel/accel0");
  EXPECT_FALSE(has_tpu(dev)) << "other accelerators have a folder";
  folder.write("dev/accel0");
  EXPECT_TRUE(has_tpu(dev));
}

}  // namespace
}  // namespace ivme::xla
