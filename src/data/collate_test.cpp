#include "ivme/collate.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/tensor.h>
#include <torch/data/transforms/stack.h>

#include "ivme/data_loader.h"
#include "ivme/error.h"

namespace ivme {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor row(double value) { return at::full({2}, value); }

TEST(Collate, tensors_are_stacked_along_a_new_dimension) {
  at::Tensor batch = default_collate(std::vector<at::Tensor>{row(1), row(2), row(3)});
  EXPECT_EQ(batch.sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(batch[2][1].item<float>(), 3);
}

TEST(Collate, numbers_become_tensors_of_pythons_dtypes) {
  EXPECT_EQ(default_collate(std::vector<int>{1, 2}).scalar_type(), at::kLong);
  EXPECT_EQ(default_collate(std::vector<float>{1, 2}).scalar_type(), at::kFloat);
  EXPECT_EQ(default_collate(std::vector<double>{1, 2}).scalar_type(), at::kDouble);
  at::Tensor flags = default_collate(std::vector<bool>{true, false});
  EXPECT_EQ(flags.scalar_type(), at::kBool);
  EXPECT_FALSE(flags[1].item<bool>());
}

TEST(Collate, examples_keep_their_type_where_it_can_hold_a_batch) {
  using Pair = torch::data::Example<>;
  Pair batch = default_collate(std::vector<Pair>{{row(1), at::tensor(3)}, {row(2), at::tensor(4)}});
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(batch.target[1].item<int64_t>(), 4);
  using Labelled = torch::data::Example<at::Tensor, int64_t>;
  Batch labelled = default_collate(std::vector<Labelled>{{row(1), 3}, {row(2), 4}});
  EXPECT_EQ(labelled.target.scalar_type(), at::kLong);
  EXPECT_EQ(labelled.target[1].item<int64_t>(), 4);
  torch::data::TensorExample alone = default_collate(std::vector<torch::data::TensorExample>{row(1), row(2)});
  EXPECT_EQ(alone.data.sizes(), (std::vector<int64_t>{2, 2}));
}

TEST(Collate, structures_are_collated_field_by_field) {
  using Sample = std::tuple<at::Tensor, int, std::string>;
  auto [data, target, name] = default_collate(std::vector<Sample>{{row(1), 5, "a"}, {row(2), 6, "b"}});
  EXPECT_EQ(data.size(0), 2);
  EXPECT_EQ(target[1].item<int64_t>(), 6);
  EXPECT_THAT(name, ElementsAre("a", "b"));

  auto [first, second] = default_collate(std::vector<std::pair<at::Tensor, double>>{{row(1), 0.5}});
  EXPECT_EQ(first.size(0), 1);
  EXPECT_EQ(second[0].item<double>(), 0.5);

  using Fields = std::map<std::string, at::Tensor>;
  auto fields =
      default_collate(std::vector<Fields>{{{"x", row(1)}, {"y", row(2)}}, {{"y", row(4)}, {"x", row(3)}}});
  EXPECT_EQ(fields.at("x")[1][0].item<float>(), 3);
  EXPECT_EQ(fields.at("y")[1][0].item<float>(), 4);

  auto columns = default_collate(std::vector<std::vector<at::Tensor>>{{row(1), row(2)}, {row(3), row(4)}});
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[1][0][0].item<float>(), 2);
}

TEST(Collate, samples_of_unequal_shape_are_refused_naming_both_shapes) {
  try {
    default_collate(std::vector<at::Tensor>{at::zeros({2, 5}), at::zeros({2, 7})});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("[2, 5]"), HasSubstr("[2, 7]"), HasSubstr("collate")));
  }
}

struct Words {
  size_t size() const { return 3; }
  std::string get(size_t index) const { return std::string(index + 1, 'x'); }
};

TEST(DataLoader, a_collate_function_of_ones_own_makes_the_batch) {
  auto lengths = [](const std::vector<std::string>& words) {
    std::vector<int64_t> sizes;
    for (const auto& word : words) sizes.push_back(static_cast<int64_t>(word.size()));
    return at::tensor(sizes, at::kLong);
  };
  auto loader = data_loader(Words{}, {.batch_size = 3}, lengths);
  for (at::Tensor& batch : loader) EXPECT_EQ(batch.sum().item<int64_t>(), 6);
  EXPECT_EQ(loader.size(), 1);
}

struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(size_t index) override {
    auto i = static_cast<int64_t>(index);
    return {at::full({1}, i), at::full({}, i * i)};
  }
  std::optional<size_t> size() const override { return 5; }
};

TEST(DataLoader, torchs_datasets_are_read_sample_by_sample_or_mapped_with_stack) {
  auto check = [](auto loader) {
    EXPECT_EQ(loader.size(), 2);
    int64_t seen = 0;
    for (auto& batch : loader) {
      EXPECT_EQ(batch.data.dim(), 2);
      EXPECT_TRUE(at::equal(batch.data.flatten().square(), batch.target));
      seen += batch.data.size(0);
    }
    EXPECT_EQ(seen, 5);
  };
  check(data_loader(Squares{}, {.batch_size = 4}));
  check(data_loader(Squares{}.map(torch::data::transforms::Stack<>()), {.batch_size = 4, .shuffle = true}));
}

struct Masked {
  torch::data::Example<> example;
  at::Tensor mask, unnamed;
};
void for_each_tensor(Masked& masked, const TensorVisitor& visit) {
  visit_tensors(masked.example, visit.within("example"));
  visit(masked.mask, "mask");
  visit(masked.unnamed);
}

TEST(VisitTensors, tells_names_to_those_who_ask) {
  std::map<std::string, Masked> named;
  named["text"];
  std::tuple value(at::Tensor(), std::vector<at::Tensor>(2), named, std::optional(torch::data::Example<>()));
  std::vector<std::string> names;
  visit_tensors(value, [&](at::Tensor&, const std::string& name) { names.push_back(name); });
  EXPECT_THAT(names, ElementsAre("0", "1.0", "1.1", "2.text.example.data", "2.text.example.target",
                                 "2.text.mask", "2.text", "3.data", "3.target"));
  at::Tensor alone;
  visit_tensors(alone, [&](at::Tensor&, const std::string& name) { EXPECT_EQ(name, ""); });
  int count = 0;
  visit_tensors(value, [&](at::Tensor&) { ++count; });
  EXPECT_EQ(count, 9);
}

TEST(DataLoader, torchs_datasets_without_targets_are_read_too) {
  torch::data::datasets::TensorDataset numbers(at::arange(5));
  auto mapped = data_loader(numbers.map(torch::data::transforms::Stack<torch::data::TensorExample>()),
                            {.batch_size = 4});
  auto plain = data_loader(numbers, {.batch_size = 4});
  for (const auto& loader : {plain, mapped}) {
    int64_t sum = 0;
    for (auto& batch : loader) sum += batch.data.sum().item<int64_t>();
    EXPECT_EQ(sum, 10);
  }
}

}  // namespace
}  // namespace ivme
