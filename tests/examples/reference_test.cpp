// The examples against recorded runs of Python Accelerate. On the recorded kind of machine every number is
// the same bit for bit (./dev parity shows it on any one machine); on another, first losses agree to
// rounding, later ones less so.
#include "examples/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "support/hash.h"

namespace examples::testing {
namespace {

struct Case {
  std::string name;
  size_t batches;  // how many of the 200 recorded ones are run; all of them where a schedule needs it
  double tolerance = 1e-5;  // relative, of the first 10 losses
  bool to_the_end = false;  // of all losses
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case cases[] = {
    {.name = "mlp_sgd_p1", .batches = 20},
    {.name = "mlp_sgd_p2", .batches = 20},
    {.name = "mlp_adamw_p2", .batches = 20},
    {.name = "mlp_sgd_p1_acc4_cos", .batches = 200},
    {.name = "mlp_adamw_p2_acc2_wu", .batches = 200},
    {.name = "mlp_sgd_p2_bf16", .batches = 20, .tolerance = 1e-3},
    {.name = "mlp_sgd_p2_clip", .batches = 20},
    {.name = "mlp_sgd_p2_split", .batches = 20},
    {.name = "mlp_sgd_p1_default", .batches = 20},
    {.name = "mlp_sgd_p2_default", .batches = 20},
    {.name = "dig_sgd_p1_acc2", .batches = 200},
    {.name = "dig_sgd_p2_acc2", .batches = 200},
    {.name = "dig_sgd_p1_default", .batches = 200},
    {.name = "dig_cnn_p2_wu", .batches = 200},
    {.name = "cnn_sgd_p1", .batches = 20},
    {.name = "cnn_sgd_p2", .batches = 20},
    {.name = "cnn_sgd_p1_bf16", .batches = 20, .tolerance = 1e-3},
    {.name = "bn_sgd_p1_default", .batches = 20, .tolerance = 1e-2},
    {.name = "bn_dig_p2", .batches = 200, .tolerance = 1e-2},
    {.name = "lm_adamw_p1", .batches = 200, .to_the_end = true},
    {.name = "lm_adamw_p2", .batches = 20, .to_the_end = true},
    {.name = "lm_sgd_p1", .batches = 20},
};

double number(const nlohmann::json& hex) { return std::strtod(hex.get<std::string>().c_str(), nullptr); }

class Reference : public ::testing::TestWithParam<Case> {};

void compare_losses(const Case& expected, const Recording& python, const Record& ours) {
  ASSERT_EQ(ours.micro.size(), expected.batches);
  double mean = 0, python_mean = 0;
  for (size_t k = 0; k < expected.batches; ++k) {
    const auto& theirs = python.micro[k].at("loss");
    const auto& mine = ours.micro[k].at("loss_ranks");
    ASSERT_EQ(mine.size(), theirs.size());
    for (size_t rank = 0; rank < theirs.size(); ++rank) {
      const double loss = number(theirs[rank]);
      if (k < 10 || expected.to_the_end) {
        ASSERT_NEAR(number(mine[rank]), loss, expected.tolerance * loss)
            << "batch " << k << ", rank " << rank;
      }
      mean += number(mine[rank]);
      python_mean += loss;
    }
  }
  EXPECT_NEAR(mean, python_mean, 0.02 * python_mean);
}

// The sample order of an update from the recorded indices, as long as they were recorded.
void compare_orders(const Recording& python, const Record& ours) {
  uint64_t order = 0;
  size_t step = 0;
  for (size_t k = 0; k < python.batches.size(); ++k) {
    for (const auto& rank : python.batches[k].at("ids"))
      for (const auto& index : rank) order += ivme::index_hash(index.get<int64_t>());
    if (python.micro[k].value("sync", 1) == 0) continue;
    EXPECT_EQ(ours.steps.at(step++).at("order"), ivme::hex16(order)) << "update " << step;
    order = 0;
  }
}

void compare_updates(const Case& expected, const Recording& python, const Record& ours) {
  size_t step = 0;
  for (size_t k = 0; k < expected.batches; ++k) {
    const auto& theirs = python.micro[k];
    if (theirs.value("sync", 1) == 0) continue;
    ASSERT_LT(step, ours.steps.size());
    const auto& mine = ours.steps[step++];
    ASSERT_EQ(mine.at("lr").get<double>(), theirs.at("lr").get<double>()) << "update " << step;
    ASSERT_EQ(mine.at("samples"), theirs.at("seen")) << "update " << step;
    if (theirs.contains("gn") && k < 10) {
      ASSERT_NEAR(mine.at("grad_norm").get<double>(), number(theirs["gn"]), 1e-4 * number(theirs["gn"]));
    }
  }
  EXPECT_EQ(step, ours.steps.size());
}

TEST_P(Reference, losses_rates_and_sample_order_are_those_of_python) {
  const Case& expected = GetParam();
  const Recording python = recording(expected.name);
  const Folder folder;
  Words flags = python.flags;
  for (const std::string& word :
       {std::string("--max_batches"), std::to_string(expected.batches), std::string("--record_micro"),
        std::string("--record"), folder.path("record")})
    flags.push_back(word);
  const Outcome outcome = launch(python.processes, python.example, flags);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Record ours = read_record(folder.path("record"));
  compare_losses(expected, python, ours);
  compare_orders(python, ours);
  compare_updates(expected, python, ours);
  ASSERT_TRUE(ours.final.is_object());
  if (expected.batches == python.micro.size()) {
    EXPECT_NEAR(ours.final["metrics"]["accuracy"].get<double>(), python.eval["acc"].get<double>(), 0.02);
  }
}

INSTANTIATE_TEST_SUITE_P(Python, Reference, ::testing::ValuesIn(cases),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace examples::testing
