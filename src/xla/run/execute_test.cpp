// With the plugin that find_plugin finds; these fail where there is none.
#include "xla/run/execute.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "xla/compile/error_of.h"

// The sanitizer's allocator aborts otherwise where malloc returns null.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }  // NOLINT

namespace ivme::xla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Shape pair{Dtype::f32, {2}};

// (a + b, a * b); the first result may take the memory of a, the second that of b.
const std::string sum_and_product = R"(module {
  func.func public @main(%a: tensor<2xf32> {tf.aliasing_output = 0 : i32},
                         %b: tensor<2xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<2xf32>, tensor<2xf32>) {
    %0 = stablehlo.add %a, %b : tensor<2xf32>
    %1 = stablehlo.multiply %a, %b : tensor<2xf32>
    return %0, %1 : tensor<2xf32>, tensor<2xf32>
  }
}
)";

class Execute : public testing::Test {
 protected:
  static std::shared_ptr<Client> open_client(int devices) {
    return Client::create(find_plugin(), {.cpu_devices = devices, .cache = {.enabled = false}});
  }
  std::shared_ptr<Buffer> array(std::vector<float> values, int device = 0) const {
    return upload(client, values.data(), {Dtype::f32, {static_cast<int64_t>(values.size())}}, device);
  }
  static std::vector<float> values(const Buffer& buffer) {
    std::vector<float> received(static_cast<size_t>(buffer.shape().count()));
    buffer.download(received.data(), buffer.bytes());
    return received;
  }

  std::shared_ptr<Client> client = open_client(2);
  std::shared_ptr<Executable> program = client->compile(sum_and_product);
};

TEST_F(Execute, without_donation_the_arguments_stay_whole) {
  const auto a = array({1, 2}), b = array({3, 5});
  const auto results = execute(*program, {a, b});
  EXPECT_THAT(values(*results.at(0)), ElementsAre(4, 7));
  EXPECT_THAT(values(*results.at(1)), ElementsAre(3, 10));
  EXPECT_EQ(results[0]->shape(), pair);
  EXPECT_FALSE(a->is_deleted());
  EXPECT_THAT(values(*a), ElementsAre(1, 2));
  EXPECT_THAT(values(*b), ElementsAre(3, 5));
  EXPECT_EQ(client->live_buffers(), 4);
}

TEST_F(Execute, a_donated_argument_is_gone_and_says_so) {
  const auto a = array({1, 2}), b = array({3, 5});
  const auto results = execute(*program, {a, b}, {true, false});
  EXPECT_THAT(values(*results.at(0)), ElementsAre(4, 7));
  EXPECT_TRUE(a->is_deleted());
  EXPECT_THAT(error_of([&] { values(*a); }), HasSubstr("was read after a program consumed it"));
  EXPECT_THAT(values(*b), ElementsAre(3, 5));
  EXPECT_EQ(client->live_buffers(), 3);
  EXPECT_EQ(client->live_bytes(), 24);
}

TEST_F(Execute, a_result_is_an_argument_of_the_next_execution) {
  auto a = array({1, 1});
  const auto b = array({1, 2});
  for (int step = 0; step < 100; ++step) a = execute(*program, {a, b}, {true, false}).at(0);
  EXPECT_THAT(values(*a), ElementsAre(101, 201));
  EXPECT_EQ(client->live_buffers(), 2);
}

// The plugin lets whoever frees a consumed array wait for the execution, so that no host could run ahead.
TEST_F(Execute, letting_go_of_what_was_donated_does_not_wait) {
  const auto slow = client->compile(R"(func.func @main(%0: tensor<700x700xf32> {tf.aliasing_output = 0 : i32})
      -> tensor<700x700xf32> {
    %i = stablehlo.constant dense<0> : tensor<i32>
    %n = stablehlo.constant dense<200> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = stablehlo.while(%x = %0, %k = %i) : tensor<700x700xf32>, tensor<i32>
      cond {
        %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
          : (tensor<700x700xf32>, tensor<700x700xf32>) -> tensor<700x700xf32>
        %next = stablehlo.add %k, %one : tensor<i32>
        stablehlo.return %y, %next : tensor<700x700xf32>, tensor<i32>
      }
    return %r#0 : tensor<700x700xf32>
  })");
  const std::vector<float> zeros(700 * 700);
  auto a = upload(client, zeros.data(), {Dtype::f32, {700, 700}});
  const auto result = execute(*slow, {a}, {true}).at(0);
  EXPECT_TRUE(a->is_deleted());
  a.reset();
  EXPECT_FALSE(result->is_ready());
  result->wait();
  EXPECT_TRUE(result->is_ready());
}

TEST_F(Execute, an_array_passed_twice_is_not_consumed) {
  const auto a = array({2, 3});
  const auto results = execute(*program, {a, a}, {true, true});
  EXPECT_THAT(values(*results.at(0)), ElementsAre(4, 6));
  EXPECT_THAT(values(*results.at(1)), ElementsAre(4, 9));
  EXPECT_THAT(values(*a), ElementsAre(2, 3));
}

TEST_F(Execute, donation_without_an_alias_consumes_nothing) {
  const auto square = client->compile(
      "func.func @main(%0: tensor<2xf32>) -> tensor<2xf32> { %1 = stablehlo.multiply %0, %0 : tensor<2xf32> "
      "return %1 : tensor<2xf32> }");
  const auto a = array({2, 3});
  EXPECT_THAT(values(*execute(*square, {a}, {true}).at(0)), ElementsAre(4, 9));
  EXPECT_FALSE(a->is_deleted());
}

TEST_F(Execute, arguments_may_die_before_the_results_are_read) {
  std::vector<std::shared_ptr<Buffer>> results;
  {
    const auto a = array({1, 2}), b = array({3, 5});
    results = execute(*program, {a, b});
  }
  program.reset();
  EXPECT_THAT(values(*results.at(0)), ElementsAre(4, 7));
}

TEST_F(Execute, a_program_without_arguments_or_with_empty_arrays_runs) {
  const auto constant = client->compile(
      "func.func @main() -> tensor<2xf32> { %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32> "
      "return %0 : tensor<2xf32> }");
  EXPECT_THAT(values(*execute(*constant, {}).at(0)), ElementsAre(1, 2));
  const auto negate = client->compile(
      "func.func @main(%0: tensor<0xf32>) -> tensor<0xf32> { %1 = stablehlo.negate %0 : tensor<0xf32> "
      "return %1 : tensor<0xf32> }");
  EXPECT_TRUE(values(*execute(*negate, {array({})}).at(0)).empty());
}

TEST_F(Execute, what_would_hurt_the_plugin_is_refused_before_anything_is_touched) {
  const auto a = array({1, 2}), gone = array({1, 2});
  execute(*program, {gone, a}, {true, false});
  const auto others = open_client(1);
  const std::vector<float> data = {1, 2};
  const auto foreign = upload(others, data.data(), pair);
  const struct {
    std::shared_ptr<Buffer> second;
    const char* sentence;
  } cases[] = {{nullptr, "was given no array"},
               {gone, "an earlier program consumed"},
               {foreign, "an array of another client"},
               {array({1, 2}, 1), "an array on device 1"},
               {array({1, 2, 3}), "an array tensor<3xf32>"},
               {upload(client, data.data(), {Dtype::i32, {2}}), "an array tensor<2xi32>"}};
  for (const auto& each : cases)
    EXPECT_THAT(error_of([&] { execute(*program, {a, each.second}, {true, true}); }),
                testing::AllOf(HasSubstr("argument 1 is tensor<2xf32>"), HasSubstr(each.sentence)));
  EXPECT_THAT(error_of([&] { execute(*program, {a}); }), HasSubstr("2 arguments was to run with 1"));
  EXPECT_THAT(error_of([&] { execute(*program, {a, a, a}); }), HasSubstr("2 arguments was to run with 3"));
  EXPECT_THAT(error_of([&] { execute(*program, {a, a}, {true}); }), HasSubstr("1 marks of donation"));
  EXPECT_THAT(error_of([&] { execute(*client->compile(sum_and_product, 2), {a, a}); }),
              HasSubstr("for 2 devices"));
  EXPECT_THAT(values(*a), ElementsAre(1, 2));
}

// Page by page from the kernel it would cost 16384 faults in each run.
TEST_F(Execute, the_memory_of_a_run_serves_the_next) {
  if (dlsym(RTLD_DEFAULT, "__asan_init") != nullptr)
    GTEST_SKIP() << "the sanitizer has an allocator of its own";
  const auto large = client->compile(
      "func.func @main(%0: tensor<f32>) -> tensor<16777216xf32> { "
      "%1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<16777216xf32> "
      "return %1 : tensor<16777216xf32> }");
  const float one = 1;
  const auto scalar = upload(client, &one, {Dtype::f32, {}});
  auto faults_of_a_run = [&] {
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    execute(*large, {scalar}).at(0)->wait();
    getrusage(RUSAGE_SELF, &after);
    return after.ru_minflt - before.ru_minflt;
  };
  faults_of_a_run();
  faults_of_a_run();
  for (int run = 0; run < 5; ++run) EXPECT_LT(faults_of_a_run(), 1000);
}

TEST_F(Execute, an_execution_that_runs_out_of_memory_is_an_error) {
  const auto huge = client->compile(
      "func.func @main(%0: tensor<f32>) -> tensor<1099511627776x1024xf32> { "
      "%1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<1099511627776x1024xf32> "
      "return %1 : tensor<1099511627776x1024xf32> }");
  const float one = 1;
  const auto scalar = upload(client, &one, {Dtype::f32, {}});
  EXPECT_THAT(error_of([&] { execute(*huge, {scalar}).at(0)->wait(); }),
              HasSubstr("failed in the PJRT plugin"));
  EXPECT_EQ(client->live_buffers(), 1);
}

}  // namespace
}  // namespace ivme::xla
