// With the plugin that find_plugin finds; these fail where there is none.
#include "xla/compile/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "xla/compile/child_process.h"
#include "xla/compile/compile_options.h"
#include "xla/compile/error_of.h"
#include "xla/compile/temporary_folder.h"

namespace ivme::xla {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const std::string add_one = R"(module {
  func.func public @main(%0: tensor<3xf32> {tf.aliasing_output = 0 : i32}) -> tensor<3xf32> {
    %1 = stablehlo.constant dense<1.0> : tensor<3xf32>
    %2 = stablehlo.add %0, %1 : tensor<3xf32>
    return %2 : tensor<3xf32>
  }
}
)";

std::shared_ptr<Client> client_with(const fs::path& cache, int devices = 1) {
  return Client::create(find_plugin(), {.cpu_devices = devices, .cache = {.folder = cache}});
}

std::shared_ptr<Client> client_without_cache(int devices = 1) {
  return Client::create(find_plugin(), {.cpu_devices = devices, .cache = {.enabled = false}});
}

fs::path only_entry(const fs::path& folder) {
  fs::path found;
  for (const auto& entry : fs::directory_iterator(folder)) found = entry.path();
  return found;
}

TEST(CompileOptions, are_the_bytes_that_xla_was_seen_to_take) {
  EXPECT_EQ(compile_options(1), "\x1a\x04\x20\x01\x28\x01");
  EXPECT_EQ(compile_options(300), "\x1a\x07\x20\x01\x28\xac\x02\x30\x01");
}

TEST(Client, tells_what_it_drives) {
  const auto client = client_without_cache(3);
  EXPECT_EQ(client->platform(), "cpu");
  EXPECT_TRUE(client->on_host());
  EXPECT_EQ(client->device_count(), 3);
  EXPECT_EQ(client->device_kind(2), "cpu");
  EXPECT_THAT(client->api().attributes, HasSubstr("stablehlo_current_version="));
  EXPECT_THAT(error_of([&] { client->device(3); }), HasSubstr("cpu has 3"));
}

TEST(Client, a_number_of_devices_out_of_range_is_refused) {
  for (const int devices : {-1, 0, 1025})
    EXPECT_THAT(error_of([&] { client_without_cache(devices); }), HasSubstr("Ask for 1 to 1024"));
}

TEST(Client, a_compiled_program_is_described) {
  const auto executable = client_without_cache()->compile(add_one);
  EXPECT_EQ(executable->num_outputs(), 1);
  EXPECT_EQ(executable->signature().arguments.at(0), (Shape{Dtype::f32, {3}}));
  EXPECT_FALSE(executable->from_cache());
  EXPECT_GT(executable->seconds(), 0);
  const auto memory = executable->memory();
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->arguments, 12);
  EXPECT_EQ(memory->aliased, 12);
  EXPECT_GE(memory->results, 12);
}

TEST(Client, an_executable_keeps_its_client) {
  auto client = client_without_cache();
  const std::weak_ptr<Client> watched = client;
  auto executable = client->compile(add_one);
  client.reset();
  EXPECT_FALSE(watched.expired());
  EXPECT_GT(executable->serialize().size(), 100U);
  executable.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(Client, a_faulty_program_is_answered_with_line_and_column) {
  const auto client = client_without_cache();
  std::string faulty = add_one;
  faulty.replace(faulty.find("stablehlo.add"), 13, "stablehlo.ad2");
  EXPECT_THAT(error_of([&] { client->compile(faulty); }),
              AllOf(HasSubstr("Compiling the program failed"), HasSubstr(":4:"), HasSubstr("stablehlo.ad2")));
  EXPECT_THAT(error_of([&] { client->compile(""); }), HasSubstr("no function @main"));
  EXPECT_THAT(error_of([&] { client->compile("func.func @main() {"); }),
              HasSubstr("Compiling the program failed"));
  EXPECT_EQ(client->compiled(), 0);
}

TEST(Client, a_program_for_more_devices_than_there_are_is_refused) {
  const auto client = client_without_cache(2);
  for (const int partitions : {-1, 0, 3})
    EXPECT_THAT(error_of([&] { client->compile(add_one, partitions); }),
                HasSubstr("Compile for 1 to that many"));
  EXPECT_EQ(client->compile(add_one, 2)->num_partitions(), 2);
}

TEST(CompileCache, the_second_client_loads) {
  const TemporaryFolder cache;
  const auto first = client_with(cache.path());
  first->compile(add_one);
  EXPECT_EQ(first->compiled(), 1);
  const auto second = client_with(cache.path());
  const auto loaded = second->compile(add_one);
  EXPECT_TRUE(loaded->from_cache());
  EXPECT_EQ(loaded->num_outputs(), 1);
  EXPECT_EQ(second->compiled(), 0);
  EXPECT_EQ(second->loaded(), 1);
}

TEST(CompileCache, another_program_or_number_of_devices_is_another_entry) {
  const TemporaryFolder cache;
  client_with(cache.path())->compile(add_one);
  std::string other = add_one;
  other.replace(other.find("dense<1.0>"), 10, "dense<2.0>");
  EXPECT_FALSE(client_with(cache.path())->compile(other)->from_cache());
  const auto two = client_with(cache.path(), 2);
  EXPECT_FALSE(two->compile(add_one)->from_cache());
  EXPECT_FALSE(two->compile(add_one, 2)->from_cache());
  EXPECT_TRUE(client_with(cache.path(), 2)->compile(add_one, 2)->from_cache());
}

TEST(CompileCache, other_compiler_flags_are_another_entry) {
  const TemporaryFolder cache;
  client_with(cache.path())->compile(add_one);
  ASSERT_EQ(::setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false", 1), 0);
  EXPECT_FALSE(client_with(cache.path())->compile(add_one)->from_cache());
  ASSERT_EQ(::unsetenv("XLA_FLAGS"), 0);
  EXPECT_TRUE(client_with(cache.path())->compile(add_one)->from_cache());
}

TEST(CompileCache, a_damaged_entry_is_compiled_anew) {
  const TemporaryFolder cache;
  client_with(cache.path())->compile(add_one);
  const fs::path entry = only_entry(cache.path());
  fs::resize_file(entry, fs::file_size(entry) / 2);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(client_with(cache.path())->compile(add_one)->from_cache());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("compiled anew"));
  EXPECT_TRUE(client_with(cache.path())->compile(add_one)->from_cache());
}

TEST(CompileCache, an_entry_that_the_plugin_refuses_is_compiled_anew) {
  const TemporaryFolder cache;
  client_with(cache.path())->compile(add_one);
  const std::string key = only_entry(cache.path()).stem();
  DiskCache({.folder = cache.path()}).store(key, "whole, but no program");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(client_with(cache.path())->compile(add_one)->from_cache());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot be used: the PJRT plugin"));
}

TEST(CompileCache, a_folder_that_cannot_be_used_is_no_obstacle) {
  const TemporaryFolder folder;
  const auto client = client_with(folder.write("file") / "cache");
  testing::internal::CaptureStderr();
  EXPECT_EQ(client->compile(add_one)->num_outputs(), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("not kept"));
}

TEST(CompileCache, threads_compile_at_once) {
  const TemporaryFolder cache;
  const auto client = client_with(cache.path());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { client->compile(add_one); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(client->compiled() + client->loaded(), 4);
}

TEST(CompileCache, processes_compile_at_once) {
  if (const auto shared = child_argument()) {
    EXPECT_EQ(client_with(*shared)->compile(add_one)->num_outputs(), 1);
    return;
  }
  const TemporaryFolder cache;
  const pid_t first = start_child(cache.path()), second = start_child(cache.path());
  EXPECT_EQ(wait_for_child(first), 0);
  EXPECT_EQ(wait_for_child(second), 0);
  EXPECT_TRUE(client_with(cache.path())->compile(add_one)->from_cache());
}

}  // namespace
}  // namespace ivme::xla
