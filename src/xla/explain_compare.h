#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "xla/explain.h"

namespace ivme::xla {

// A known program beside the new one, by the names of their operations.
struct Likeness {
  const ProgramSummary* before = nullptr;
  std::vector<size_t> names;  // of `before`: a number for each name, the same in all programs
  size_t prefix = 0;          // operations of one name at the beginning of both
  size_t unshared = 0;        // operations that the other program has not, in whatever order
  size_t kinds_now = 0, kinds_before = 0, kinds_shared = 0;  // names, each counted once
  size_t differing = 0;  // within the prefix: operations with other shapes or arguments; and inputs

  bool same_operations() const { return unshared == 0; }
  bool same_order() const { return same_operations() && prefix == names.size(); }
  // At least half of the kinds of operations of either are the other's too.
  bool related() const { return 2 * kinds_shared >= std::max(kinds_now, kinds_before); }
  // Less is nearer.
  auto distance() const { return std::tuple(!related(), unshared, names.size() - prefix, differing); }
};

struct Comparison {
  const ProgramSummary& now;
  std::vector<size_t> names;  // of `now`
  std::vector<Likeness> known;
  size_t nearest = 0;  // of `known`; of several the latest

  const Likeness& likeness() const { return known[nearest]; }
  const ProgramSummary& before() const { return *likeness().before; }
};
// At least one program is known.
Comparison compare(const std::vector<const ProgramSummary*>& known, const ProgramSummary& now);

// Which input of `program` another program's input is: the one at its place, if there are as many and the
// names are equal, or else the one of its name.
class Counterparts {
 public:
  explicit Counterparts(const ProgramSummary& program);                              // keeps a reference
  const ProgramSummary::Input* of(const ProgramSummary& other, size_t input) const;  // null: there is none

 private:
  const ProgramSummary& program_;
  std::unordered_map<std::string_view, const ProgramSummary::Input*> by_name_;
};

struct Repetition {
  size_t block;            // operations
  size_t longer, shorter;  // times
};
// How often a block is repeated in `longer` and in `shorter`, if that is in what they differ where they part
// (their first `parting` values are equal). Behind the block they must agree again, for one operation at
// least: a loop has another one in the backward pass.
std::optional<Repetition> find_repetition(const std::vector<size_t>& longer,
                                          const std::vector<size_t>& shorter, size_t parting);

}  // namespace ivme::xla
