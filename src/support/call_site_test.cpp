#include "support/call_site.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ivme {
namespace {

std::string line(int number) { return "call_site_test.cpp:" + std::to_string(number); }

TEST(CallSite, of_nothing_is_empty) {
  EXPECT_FALSE(CallSite());
  EXPECT_EQ(CallSite().text(), "");
  EXPECT_EQ(CallSite().where(), "");
}

TEST(CallSite, names_file_and_line) {
  const CallSite site = CallSite::here();
  EXPECT_EQ(site.text(), line(__LINE__ - 1));
  EXPECT_EQ(site.where(), " at " + line(__LINE__ - 2));
}

TEST(CallSite, one_place_is_one_call_site) {
  std::vector<CallSite> sites;
  for (int i = 0; i < 3; ++i) sites.push_back(CallSite::here());
  const CallSite other = CallSite::here();
  EXPECT_EQ(sites[0], sites[1]);
  EXPECT_EQ(sites[1], sites[2]);
  EXPECT_FALSE(sites[0] == other);
}

inline CallSite inlined() { return CallSite::here(); }

TEST(CallSite, an_inlined_function_is_a_place_of_its_own) { EXPECT_EQ(inlined().text(), line(__LINE__ - 2)); }

// The comparison is the user's, called by a function of the standard library.
TEST(CallSite, the_standard_library_is_passed_over) {
  std::vector<int> numbers = {3, 1, 2};
  CallSite site;
  std::sort(numbers.begin(), numbers.end(), [&](int a, int b) {
    site = CallSite::here();
    return a < b;
  });
  EXPECT_EQ(site.text(), line(__LINE__ - 3));
}

TEST(CallSite, of_a_backward_pass_the_user_s_own_line_comes_first) {
  const CallSite forward = CallSite::here();
  const CallSite own = CallSite::in_backward_of(forward);
  EXPECT_EQ(own.text(), line(__LINE__ - 1));
  EXPECT_EQ(CallSite::in_backward_of({}).text(), line(__LINE__));
}

int depth_of(int levels, CallSite& site) {
  if (levels == 0) {
    site = CallSite::here();
    return 0;
  }
  return 1 + depth_of(levels - 1, site);
}

TEST(CallSite, an_endless_recursion_is_not_walked_to_its_end) {
  CallSite site;
  EXPECT_EQ(depth_of(10000, site), 10000);
  EXPECT_TRUE(site.text().starts_with("call_site_test.cpp:"));
}

}  // namespace
}  // namespace ivme
