// Strided views, read and written on the plugin that find_plugin finds, against memory on the host.
#include <gtest/gtest.h>

#include <random>

#include "ivme/error.h"
#include "xla/lower/run_graph.h"
#include "xla/lower/strided_window.h"

namespace ivme::xla {
namespace {

struct View {
  Dims base;
  StridedWindow window;
};

int64_t size_of_base(const View& view) { return Shape{Dtype::f32, view.base}.count(); }

std::string describe(const View& view) {
  std::string text = "base";
  for (int64_t n : view.base) text += " " + std::to_string(n);
  text += "; sizes";
  for (int64_t n : view.window.sizes) text += " " + std::to_string(n);
  text += "; strides";
  for (int64_t n : view.window.strides) text += " " + std::to_string(n);
  return text + "; offset " + std::to_string(view.window.offset);
}

// Each element's place in memory, row-major.
std::vector<size_t> places(const StridedWindow& window) {
  std::vector<size_t> all{static_cast<size_t>(window.offset)};
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    std::vector<size_t> next;
    for (size_t place : all) {
      for (int64_t k = 0; k < window.sizes[i]; ++k)
        next.push_back(place + static_cast<size_t>(k * window.strides[i]));
    }
    all = std::move(next);
  }
  return all;
}

std::vector<double> counting(size_t count, double start) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) values.push_back(start + static_cast<double>(i));
  return values;
}

void add_arguments(const View& view, std::vector<Argument>& arguments) {
  arguments.insert(arguments.end(),
                   {list(view.window.sizes), list(view.window.strides), whole(view.window.offset)});
}

void expect_right(const std::vector<View>& views) {
  std::vector<Value> roots;
  for (const View& view : views) {
    const Value base =
        make_tensor(Dtype::f32, view.base, counting(static_cast<size_t>(size_of_base(view)), 0));
    const Value update =
        make_tensor(Dtype::f32, view.window.sizes, counting(places(view.window).size(), 1000));
    std::vector<Argument> read{operand(0)}, written{operand(0), operand(1)};
    add_arguments(view, read);
    add_arguments(view, written);
    roots.push_back(apply("ivme::as_strided", {base}, read));
    roots.push_back(apply("ivme::as_strided_scatter", {base, update}, written));
  }
  const auto results = run(roots);
  for (size_t i = 0; i < views.size(); ++i) {
    std::vector<double> seen, memory = counting(static_cast<size_t>(size_of_base(views[i])), 0);
    double next = 1000;
    for (size_t place : places(views[i].window)) seen.push_back(static_cast<double>(place));
    for (size_t place : places(views[i].window)) memory[place] = next++;
    EXPECT_EQ(results[2 * i], seen) << "read: " << describe(views[i]);
    EXPECT_EQ(results[2 * i + 1], memory) << "written: " << describe(views[i]);
  }
}

TEST(Strided, views_that_pytorch_makes) {
  expect_right({
      {{2, 3}, {{3, 2}, {1, 3}, 0}},            // transposed
      {{4, 6}, {{4, 2}, {6, 2}, 1}},            // every second column
      {{4, 5}, {{4, 2}, {5, 2}, 1}},            // that, where columns do not come out even
      {{4, 6}, {{4}, {6}, 3}},                  // a column
      {{4, 4}, {{4}, {5}, 0}},                  // the diagonal
      {{3, 1}, {{3, 4}, {1, 0}, 0}},            // expanded
      {{7}, {{3, 3}, {2, 1}, 0}},               // unfolded: windows overlap
      {{20}, {{3, 4}, {4, 1}, 3}},              // rows of a slice of flat memory
      {{2, 3, 4}, {{4, 3, 2}, {1, 4, 12}, 0}},  // all dimensions turned
      {{6}, {{1, 1}, {99, 7}, 5}},              // strides of dimensions of one element
      {{}, {{}, {}, 0}},
      {{5}, {{0, 3}, {3, 1}, 0}},  // nothing
      {{0}, {{0}, {1}, 0}},
  });
}

TEST(Strided, any_window_that_fits) {
  std::mt19937 random(7);
  auto pick = [&](std::initializer_list<int64_t> values) { return values.begin()[random() % values.size()]; };
  for (int round = 0; round < 10; ++round) {
    std::vector<View> views;
    while (views.size() < 10) {
      View view;
      for (auto rank = random() % 4; rank > 0; --rank) view.base.push_back(pick({1, 2, 3, 4, 6, 8}));
      for (auto rank = random() % 4; rank > 0; --rank) {
        view.window.sizes.push_back(pick({1, 2, 2, 3, 4}));
        view.window.strides.push_back(pick({0, 1, 1, 2, 3, 4, 5, 6, 8, 12}));
      }
      view.window.offset = static_cast<int64_t>(random() % 9);
      if (view.window.last() < size_of_base(view)) views.push_back(view);
    }
    expect_right(views);
  }
}

TEST(Strided, a_view_beyond_its_memory_is_refused) {
  const Value base = make_tensor(Dtype::f32, {4}, {0, 1, 2, 3});
  EXPECT_THROW(apply("ivme::as_strided", {base}, {operand(0), list({3}), list({2}), whole(0)}), Error);
  EXPECT_THROW(apply("ivme::as_strided", {base}, {operand(0), list({2}), list({-1}), whole(3)}), Error);
}

}  // namespace
}  // namespace ivme::xla
