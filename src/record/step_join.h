#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "record/entry.h"

namespace ivme::record {

// A step of the whole run. In `line`, loss is the mean over the ranks that made the step, order and tokens
// are sums over them, samples counts all ranks' samples of this optimizer so far, and the rest is from the
// lowest rank that made it. micro_losses[r] is empty for a rank that did not make the step.
struct WholeStep {
  StepEntry line;
  std::vector<std::vector<double>> micro_losses;
};

// Joins the ranks' entries by (optimizer, step), in the order in which rank 0 made them; steps that rank 0
// never made come in the order of the lowest rank that did. Holds only what is not joined yet.
class StepJoin {
 public:
  explicit StepJoin(int world_size);

  void add(int rank, StepEntry entry);
  void end(int rank);  // nothing more comes from this rank

  // The next step of which every rank has given its part, or is known not to have one: it ended, or went on
  // to a later step of the same optimizer. Nothing while a part may still come.
  std::optional<WholeStep> next();

  bool has_entries(int rank) const { return !ranks_[static_cast<std::size_t>(rank)].entries.empty(); }
  bool all_ended() const;

 private:
  struct Rank {
    std::deque<StepEntry> entries;
    bool ended = false;
  };
  std::vector<Rank> ranks_;
  std::map<int, int64_t> samples_;  // per optimizer
};

// What a rank leaves on the board: some entries, and whether they are its last. Throws on bytes that are not
// a block.
struct Block {
  std::vector<StepEntry> entries;
  bool last = false;
};
std::string pack(const Block& block);
Block unpack(const std::string& bytes);

}  // namespace ivme::record
