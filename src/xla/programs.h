#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "xla/compile/client.h"
#include "xla/explain.h"
#include "xla/graph.h"

namespace ivme::xla {

// That a recording wants the lines of what it records. any(): whether one of this process does, which is all
// that an operation asks while none does.
class WantOfLines {
 public:
  WantOfLines() = default;
  WantOfLines(WantOfLines&& other) noexcept;
  WantOfLines& operator=(WantOfLines&& other) noexcept;
  ~WantOfLines() { set(false); }

  void set(bool wanted);
  bool wanted() const { return wanted_; }
  static bool any() { return count_.load(std::memory_order_relaxed) > 0; }

 private:
  static inline std::atomic<int> count_{0};
  bool wanted_ = false;
};

// The programs that one recording has run: what another is compared with, to say why it was needed.
class ProgramsOfLoop {
 public:
  ProgramsOfLoop() = default;
  // `expected`: different programs that update state and need no explanation: one for each kind of
  // micro-batch.
  ProgramsOfLoop(int expected, int64_t most) : expected_(expected), most_(most) { want_.set(true); }

  // Before a program runs. Throws Error, with the reason, when it is one more than `most` (0: any number).
  void note(const Graph& graph);
  // When it can run, at this cost: says on stderr why the program noted last was needed, unless it is known
  // or expected.
  void explain_new(const Cost& cost);
  // In what one of the noted programs differs from another, and what to do.
  std::string difference(uint64_t from, uint64_t to) const;

  // Whether nodes should have their lines: until the programs are known with theirs, and always if asked for.
  bool wants_lines() const { return want_.wanted(); }
  void always_want_lines(bool always);

 private:
  struct Known {
    bool trains;
    size_t index;
  };
  void learn_lines(const Graph& graph, const Known& known);

  int expected_ = 1;  // programs
  int64_t most_ = 0;
  WantOfLines want_;
  bool always_ = false;
  int steps_to_learn_ = 0;  // that lines are still wanted for, so that the newest program gets its own
  std::unordered_map<uint64_t, Known> keys_;
  std::vector<ProgramSummary> training_, evaluation_;         // those with donated state, those without
  const std::vector<ProgramSummary>* unexplained_ = nullptr;  // ends with the program noted last
  int told_ = 0;
};

// Lowered and compiled once in this process, whichever recording asks.
struct Compiled {
  std::shared_ptr<Executable> executable;
  Cost cost;
};
Compiled compiled(const Graph& graph, Client& client);
int64_t count_programs();

}  // namespace ivme::xla
