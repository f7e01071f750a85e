#include "record/lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

namespace ivme::record {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Facts all_facts() {
  Facts f;
  f.seed = 42;
  f.device = "cpu";
  f.workers = 2;
  f.host_processes = 2;
  f.per_worker_batch = 64;
  f.split_batches = false;
  f.accumulation = 4;
  f.observed_batch = 512;
  f.optimizer = OptimizerFacts{"sgd", {{"lr", 0.05}, {"momentum", 0.9}}};
  f.scheduler = SchedulerFacts{"cosine", 200, 2};
  f.precision = "bf16";
  f.sampler = "seedable";
  f.order = "0123456789abcdef";
  f.init = "fedcba9876543210";
  f.batch_norm = true;
  f.versions = {{"ivme", "0.1.0"}};
  f.command = {"train", "--lr", "0.05"};
  f.environment = {{"OMP_NUM_THREADS", "1"}};
  return f;
}

TEST(RecordLines, facts_have_every_field_in_the_order_of_the_format) {
  EXPECT_EQ(facts_line(all_facts()),
            R"({"kind":"facts","format":1,"seed":42,"device":"cpu","workers":2,"host_processes":2,)"
            R"("per_worker_batch":64,"split_batches":false,"accumulation":4,"observed_batch":512,)"
            R"("optimizer":{"name":"sgd","lr":0.05,"momentum":0.9},)"
            R"("scheduler":{"name":"cosine","total":200,"steps_per_update":2},"precision":"bf16",)"
            R"("sampler":"seedable","order":"0123456789abcdef","init":"fedcba9876543210","batch_norm":true,)"
            R"("dropout":false,"versions":{"ivme":"0.1.0"},"command":["train","--lr","0.05"],)"
            R"("environment":{"OMP_NUM_THREADS":"1"}})"
            "\n");
}

TEST(RecordLines, unknown_facts_are_left_out_but_seed_and_scheduler_are_null) {
  EXPECT_EQ(facts_line({}),
            R"({"kind":"facts","format":1,"seed":null,"device":"cpu","workers":1,"host_processes":1,)"
            R"("accumulation":1,"scheduler":null,"precision":"no","sampler":"none","batch_norm":false,)"
            R"("dropout":false,"versions":{},"command":[],"environment":{}})"
            "\n");
}

TEST(RecordLines, text_that_is_not_utf8_or_has_newlines_stays_one_line_of_json) {
  Facts f;
  f.command = {"a\nb\"c", "\xff\xfe"};
  const std::string line = facts_line(f);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["command"][0], "a\nb\"c");
  EXPECT_EQ(json["command"][1], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(RecordLines, a_step_has_its_fields_in_the_order_of_the_format) {
  StepEntry s;
  s.optimizer = 1;
  s.step = 7;
  s.samples = 896;
  s.loss = 2.25;
  s.lr = 0.05;
  s.grad_norm = 1.5;
  s.order = 0xabc;
  s.seconds = 0.125;
  EXPECT_EQ(step_line(s),
            R"({"kind":"step","optimizer":1,"step":7,"samples":896,"loss":2.25,"lr":0.05,"grad_norm":1.5,)"
            R"("order":"0000000000000abc","seconds":0.125})"
            "\n");
  s.param_norm = 10.5;
  s.update_norm = 0.5;
  s.tokens = 4096;
  EXPECT_EQ(step_line(s),
            R"({"kind":"step","optimizer":1,"step":7,"samples":896,"loss":2.25,"lr":0.05,"grad_norm":1.5,)"
            R"("param_norm":10.5,"update_norm":0.5,"order":"0000000000000abc","tokens":4096,"seconds":0.125})"
            "\n");
}

TEST(RecordLines, numbers_come_back_bit_for_bit) {
  for (double value : {0.1, 1.0 / 3, 2.302585092994046, 5e-324, 1.7976931348623157e308, -0.0, 1e22,
                       static_cast<double>(2.3025851f)}) {
    StepEntry s;
    s.loss = value;
    const double back = nlohmann::json::parse(step_line(s))["loss"].get<double>();
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
}

TEST(RecordLines, numbers_that_are_not_finite_are_strings) {
  StepEntry s;
  s.loss = kNan;
  s.grad_norm = kInf;
  s.update_norm = -kInf;
  const auto json = nlohmann::json::parse(step_line(s));
  EXPECT_EQ(json["loss"], "nan");
  EXPECT_EQ(json["grad_norm"], "inf");
  EXPECT_EQ(json["update_norm"], "-inf");
  EXPECT_EQ(micro_lines(0, {{-kNan, kInf, -kInf}}),
            "{\"kind\":\"micro\",\"micro\":0,\"loss_ranks\":[\"nan\"]}\n"
            "{\"kind\":\"micro\",\"micro\":1,\"loss_ranks\":[\"inf\"]}\n"
            "{\"kind\":\"micro\",\"micro\":2,\"loss_ranks\":[\"-inf\"]}\n");
}

TEST(RecordLines, micro_losses_are_hex_floats_per_rank_and_null_where_a_rank_has_none) {
  EXPECT_EQ(micro_lines(8, {{2.25, 1.0}, {0.1}}),
            "{\"kind\":\"micro\",\"micro\":8,\"loss_ranks\":[\"0x1.2p+1\",\"0x1.999999999999ap-4\"]}\n"
            "{\"kind\":\"micro\",\"micro\":9,\"loss_ranks\":[\"0x1p+0\",null]}\n");
  EXPECT_EQ(micro_lines(0, {{}, {}}), "");
}

TEST(RecordLines, the_final_line_keeps_the_order_of_the_metrics) {
  EXPECT_EQ(final_line({{"test_loss", 0.5}, {"accuracy", kNan}}),
            "{\"kind\":\"final\",\"metrics\":{\"test_loss\":0.5,\"accuracy\":\"nan\"},\"complete\":true}\n");
  EXPECT_EQ(final_line({}), "{\"kind\":\"final\",\"metrics\":{},\"complete\":true}\n");
}

}  // namespace
}  // namespace ivme::record
