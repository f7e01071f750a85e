#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "xla/compile/client.h"
#include "xla/explain.h"
#include "xla/graph.h"

namespace ivme::xla {

// The programs that one recording has run: what another is compared with, to say why it was needed.
class ProgramsOfLoop {
 public:
  // `expected`: different programs that update state and need no explanation: one for each kind of
  // micro-batch.
  explicit ProgramsOfLoop(int expected = 1, int64_t most = 0) : expected_(expected), most_(most) {}

  // Before a program runs. Throws Error, with the reason, when it is one more than `most` (0: any number).
  void note(const Graph& graph);
  // After it was compiled, in so many seconds: says on stderr why the program noted last was needed, unless
  // it is known or expected.
  void explain_new(double seconds);
  // In what one of the noted programs differs from another, and what to do.
  std::string difference(uint64_t from, uint64_t to) const;

 private:
  int expected_;  // programs
  int64_t most_;
  std::unordered_set<uint64_t> keys_;
  std::vector<ProgramSummary> training_, evaluation_;         // those with donated state, those without
  const std::vector<ProgramSummary>* unexplained_ = nullptr;  // ends with the program noted last
  int told_ = 0;
};

// Lowered and compiled once in this process, whichever recording asks. `seconds`: that it took now.
struct Compiled {
  std::shared_ptr<Executable> executable;
  double seconds = 0;
};
Compiled compiled(const Graph& graph, Client& client);
int64_t count_programs();

}  // namespace ivme::xla
