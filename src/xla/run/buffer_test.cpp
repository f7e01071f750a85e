// With the plugin that find_plugin finds; these fail where there is none.
#include "xla/run/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "xla/compile/child_process.h"
#include "xla/compile/error_of.h"

namespace ivme::xla {
namespace {

using testing::HasSubstr;

std::shared_ptr<Client> open_client(int devices = 1) {
  return Client::create(find_plugin(), {.cpu_devices = devices, .cache = {.enabled = false}});
}

TEST(Buffer, every_dtype_comes_back_as_it_went) {
  const auto client = open_client();
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32,
                            Dtype::i16, Dtype::i8, Dtype::u8, Dtype::boolean}) {
    const Shape shape{dtype, {3, 5, 2}};
    std::vector<uint8_t> sent(static_cast<size_t>(shape.bytes())), received(sent.size());
    for (size_t i = 0; i < sent.size(); ++i)
      sent[i] = static_cast<uint8_t>(dtype == Dtype::boolean ? i % 2 : i % 113);
    const auto buffer = upload(client, sent.data(), shape);
    EXPECT_EQ(buffer->shape(), shape);
    EXPECT_EQ(buffer->bytes(), shape.bytes());
    buffer->download(received.data(), shape.bytes());
    EXPECT_EQ(sent, received) << name_of(dtype);
  }
}

TEST(Buffer, the_data_may_be_freed_after_the_upload) {
  const auto client = open_client();
  const Shape shape{Dtype::f32, {1 << 20}};
  std::vector<float> data(1 << 20, 3.0F);
  const auto buffer = upload(client, data.data(), shape);
  std::fill(data.begin(), data.end(), -1.0F);
  std::vector<float> received(data.size());
  buffer->download(received.data(), shape.bytes());
  EXPECT_EQ(received, std::vector<float>(data.size(), 3.0F));
}

TEST(Buffer, scalars_and_empty_arrays_are_arrays) {
  const auto client = open_client();
  const double pi = 3.14159;
  double received = 0;
  upload(client, &pi, {Dtype::f64, {}})->download(&received, 8);
  EXPECT_EQ(received, pi);
  const auto empty = upload(client, nullptr, {Dtype::f32, {3, 0}});
  EXPECT_EQ(empty->bytes(), 0);
  empty->download(nullptr, 0);
}

TEST(Buffer, lies_on_the_device_that_was_asked_for) {
  const auto client = open_client(2);
  const float value = 5;
  const auto buffer = upload(client, &value, {Dtype::f32, {1}}, 1);
  EXPECT_EQ(buffer->device(), 1);
  float received = 0;
  buffer->download(&received, 4);
  EXPECT_EQ(received, 5);
  EXPECT_THAT(error_of([&] { upload(client, &value, {Dtype::f32, {1}}, 2); }), HasSubstr("cpu has 2"));
}

TEST(Buffer, wrong_memory_is_refused) {
  const auto client = open_client();
  const Shape shape{Dtype::f32, {2}};
  EXPECT_THAT(error_of([&] { upload(client, nullptr, shape); }), HasSubstr("from a null pointer"));
  const std::vector<float> data(2);
  EXPECT_THAT(error_of([&] { upload(client, data.data(), {Dtype::f32, {2, -1}}); }), HasSubstr("negative"));
  const auto buffer = upload(client, data.data(), shape);
  std::vector<float> received(4);
  EXPECT_THAT(error_of([&] { buffer->download(received.data(), 16); }),
              HasSubstr("8 bytes was to be read into 16"));
  EXPECT_THAT(error_of([&] { buffer->download(nullptr, 8); }), HasSubstr("a null pointer"));
}

TEST(Buffer, those_that_live_are_counted) {
  const auto client = open_client();
  const std::vector<float> data(6);
  auto first = upload(client, data.data(), {Dtype::f32, {6}});
  const auto second = upload(client, data.data(), {Dtype::f32, {2, 2}});
  EXPECT_EQ(client->live_buffers(), 2);
  EXPECT_EQ(client->live_bytes(), 40);
  first.reset();
  EXPECT_EQ(client->live_buffers(), 1);
  EXPECT_EQ(client->live_bytes(), 16);
}

TEST(Buffer, outlives_the_client_of_its_maker) {
  auto client = open_client();
  const int64_t value = 7;
  const auto buffer = upload(client, &value, {Dtype::i64, {}});
  client.reset();
  int64_t received = 0;
  buffer->download(&received, 8);
  EXPECT_EQ(received, 7);
}

TEST(Buffer, threads_upload_and_read_at_once) {
  const auto client = open_client();
  const Shape shape{Dtype::i32, {1000}};
  std::vector<int32_t> shared(1000);
  std::iota(shared.begin(), shared.end(), 0);
  const auto common = upload(client, shared.data(), shape);
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (size_t thread = 0; thread < right.size(); ++thread)
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 50; ++round) {
        const std::vector<int32_t> own(1000, round);
        std::vector<int32_t> received(1000), again(1000);
        upload(client, own.data(), shape)->download(received.data(), shape.bytes());
        common->download(again.data(), shape.bytes());
        right[thread] += received == own && again == shared ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 50));
}

// It is destroyed after main has returned, when the plugin has torn down its own globals.
TEST(Buffer, may_be_a_global) {
  if (!child_argument()) {
    EXPECT_EQ(wait_for_child(start_child("")), 0);
    return;
  }
  static std::shared_ptr<Buffer> global;
  const float value = 1;
  global = upload(open_client(), &value, {Dtype::f32, {}});
}

}  // namespace
}  // namespace ivme::xla
