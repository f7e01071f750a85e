#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "record/board.h"
#include "record/entry.h"

namespace ivme::record {

struct RecordOptions {
  std::string path;    // used on rank 0 only
  bool micro = false;  // a line per micro-batch too; the same on all ranks
  int rank = 0;
  int world_size = 1;
  std::string name = "0";  // tells the records of one process apart on the board; the same on all ranks

  // A block closes when one of these is reached. It is what a killed program may lose.
  int64_t block_steps = 256;
  std::chrono::milliseconds block_time{500};
  // How long rank 0 waits at most for the other ranks' parts, in final() and in the destructor.
  std::chrono::milliseconds final_wait{10'000};
  std::chrono::milliseconds end_wait{2'000};
};

// The run record (docs/run_record.md), one object per rank. Rank 0 writes the file; the others leave their
// part of each step on the board, where rank 0 looks at the end of each block and writes the steps that are
// whole. No rank waits for another one in step() or publish(), so uneven ranks are free to differ. Steps need
// not fit in memory: what has been joined and written is forgotten.
//
// Recording does not get in the way of the run: once constructed, nothing is thrown. If the disk is full or
// the board gone, the record ends there, with whole lines, and says so on stderr. For the thread that trains.
class RunRecord {
 public:
  // `board` may be null when world_size is 1. Rank 0 creates or truncates the file, and throws ivme::Error if
  // it cannot.
  RunRecord(RecordOptions options, std::shared_ptr<Board> board);

  // Closes the record. Rank 0 waits up to end_wait for steps it made, not at all if an exception is passing.
  ~RunRecord();

  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  // Once, before the first step; in the file at once. No effect but on rank 0.
  void facts(const Facts& facts);

  // After each optimizer step. Microseconds, but for the step that closes a block.
  void step(StepEntry entry);

  // Closes the block now. For the end of an epoch, and before a wait that may be long.
  void publish();

  // The end: the last block, then, on rank 0, the final line. Rank 0 waits up to final_wait for the steps it
  // made to become whole, then 0.2 s more for the others to end too; a step that is not whole by then is not
  // written. What is recorded after final() is dropped, which is said once on stderr.
  void final(const Numbers& metrics);

 private:
  class Part;
  class Writer;
  class Sender;

  void end(std::chrono::milliseconds wait, const std::string& last_line, bool quiet);
  template <class Work>
  void attempt(Work work, bool quiet = false);

  RecordOptions options_;
  std::unique_ptr<Part> part_;  // null once the record has ended or failed
  bool ended_ = false;
  bool told_ = false;  // of steps after the end
  int64_t steps_in_block_ = 0;
  std::chrono::steady_clock::time_point block_began_;
  int exceptions_at_start_;
};

}  // namespace ivme::record
