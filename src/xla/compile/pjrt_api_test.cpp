#include "xla/compile/pjrt_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "xla/compile/client.h"
#include "xla/compile/error_of.h"
#include "xla/compile/temporary_folder.h"

namespace ivme::xla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Plugin fake(const std::string& name) {
  return {Platform::cpu, std::filesystem::path(IVME_FAKE_PLUGINS) / (name + ".so")};
}

std::string error_of_loading(const Plugin& plugin) {
  return error_of([&] { load_plugin(plugin); });
}

TEST(LoadPlugin, a_missing_file_is_named) {
  EXPECT_THAT(error_of_loading({Platform::cpu, "/nowhere/plugin.so"}),
              AllOf(HasSubstr("/nowhere/plugin.so is not there"), HasSubstr("pip install")));
}

TEST(LoadPlugin, a_text_file_is_no_shared_object) {
  const TemporaryFolder folder;
  const auto text = folder.write("text.so", "this is no program\n");
  EXPECT_THAT(error_of_loading({Platform::cpu, text}),
              AllOf(HasSubstr(text.string()), HasSubstr("not a shared object that can be loaded here"),
                    HasSubstr("IVME_PJRT_PLUGIN")));
}

TEST(LoadPlugin, a_library_of_something_else_has_no_entry) {
  EXPECT_THAT(error_of_loading(fake("without_entry")),
              AllOf(HasSubstr("without_entry.so"), HasSubstr("without GetPjrtApi")));
}

TEST(LoadPlugin, an_old_version_is_refused_with_both_versions) {
  EXPECT_THAT(error_of_loading(fake("of_old_version")),
              AllOf(HasSubstr("version 0.42"), HasSubstr("needs 0.81"), HasSubstr("--upgrade")));
}

TEST(LoadPlugin, a_table_that_lacks_functions_is_refused) {
  EXPECT_THAT(error_of_loading(fake("with_short_table")),
              AllOf(HasSubstr("with 64 bytes of functions"), HasSubstr("--upgrade")));
}

TEST(LoadPlugin, a_plugin_that_fails_to_initialise_is_quoted) {
  EXPECT_THAT(error_of_loading(fake("refuses_to_initialize")),
              AllOf(HasSubstr("refuses_to_initialize.so"), HasSubstr("the fake is tired.")));
}

TEST(LoadPlugin, is_loaded_once) {
  const PjrtApi& api = load_plugin(fake("refuses_client"));
  EXPECT_EQ(&api, &load_plugin(fake("refuses_client")));
  EXPECT_EQ(api.major, 0);
  EXPECT_GE(api.minor, 81);
}

TEST(Client, a_plugin_that_opens_no_device_is_quoted) {
  EXPECT_THAT(error_of([] { Client::create(fake("refuses_client"), {.cache = {.enabled = false}}); }),
              AllOf(HasSubstr("Opening the devices failed"), HasSubstr("no fake device found."),
                    HasSubstr("IVME_PJRT_PLUGIN")));
}

TEST(Client, libtpu_is_not_even_loaded_on_a_machine_without_a_tpu) {
  const TemporaryFolder without_devices;
  EXPECT_THAT(error_of([&] {
                Client::create({Platform::tpu, "/nowhere/libtpu.so"},
                               {.cache = {.enabled = false}, .device_files = without_devices.path()});
              }),
              AllOf(HasSubstr("this machine has none"), HasSubstr("PJRT_DEVICE=CPU")));
}

}  // namespace
}  // namespace ivme::xla
