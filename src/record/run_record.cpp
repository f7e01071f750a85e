#include "record/run_record.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

#include "ivme/error.h"
#include "record/lines.h"
#include "record/record_file.h"
#include "record/step_join.h"

namespace ivme::record {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr milliseconds kEndGrace{200};

std::string key(const RecordOptions& options, int rank, int64_t block) {
  return "ivme_record/" + options.name + "/" + std::to_string(rank) + "/" + std::to_string(block);
}

}  // namespace

// What one rank does with its steps.
class RunRecord::Part {
 public:
  virtual ~Part() = default;
  virtual void facts(const Facts& facts) = 0;
  virtual void add(StepEntry entry) = 0;
  virtual void close_block() = 0;
  virtual void end(milliseconds wait, const std::string& last_line) = 0;
};

class RunRecord::Writer : public Part {
 public:
  Writer(const RecordOptions& options, std::shared_ptr<Board> board)
      : options_(options),
        board_(std::move(board)),
        file_(options.path),
        join_(options.world_size),
        next_block_(static_cast<std::size_t>(options.world_size)) {}

  void facts(const Facts& facts) override {
    file_.append(facts_line(facts));
    file_.flush();
  }

  void add(StepEntry entry) override { join_.add(0, std::move(entry)); }

  void close_block() override {
    for (int rank = 1; rank < options_.world_size; ++rank) take_blocks(rank);
    while (const std::optional<WholeStep> step = join_.next()) {
      if (options_.micro) {
        const std::string lines = micro_lines(next_micro_, step->micro_losses);
        next_micro_ += std::count(lines.begin(), lines.end(), '\n');
        file_.append(lines);
      }
      file_.append(step_line(step->line));
    }
    file_.flush();
  }

  void end(milliseconds wait, const std::string& last_line) override {
    join_.end(0);
    Clock::time_point until = Clock::now() + wait;
    bool settled = false;
    for (milliseconds pause{1}; close_block(), !join_.all_ended();
         pause = std::min(2 * pause, milliseconds(20))) {
      if (!settled && !join_.has_entries(0)) {
        settled = true;
        until = std::min(until, Clock::now() + kEndGrace);
      }
      if (Clock::now() >= until) break;
      std::this_thread::sleep_for(pause);
    }
    file_.append(last_line);
    file_.flush();
  }

 private:
  void take_blocks(int rank) {
    int64_t& next = next_block_[static_cast<std::size_t>(rank)];
    while (const auto bytes = board_->take(key(options_, rank, next))) {
      ++next;
      Block block = unpack(*bytes);
      for (StepEntry& entry : block.entries) join_.add(rank, std::move(entry));
      if (block.last) join_.end(rank);
    }
  }

  const RecordOptions& options_;
  std::shared_ptr<Board> board_;
  RecordFile file_;
  StepJoin join_;
  std::vector<int64_t> next_block_;
  int64_t next_micro_ = 0;
};

class RunRecord::Sender : public Part {
 public:
  Sender(const RecordOptions& options, std::shared_ptr<Board> board)
      : options_(options), board_(std::move(board)) {}

  void facts(const Facts&) override {}

  void add(StepEntry entry) override { block_.entries.push_back(std::move(entry)); }

  void close_block() override {
    if (!block_.entries.empty()) send();
  }

  void end(milliseconds, const std::string&) override {
    block_.last = true;
    send();
  }

 private:
  void send() { board_->set(key(options_, options_.rank, next_block_++), pack(std::exchange(block_, {}))); }

  const RecordOptions& options_;
  std::shared_ptr<Board> board_;
  Block block_;
  int64_t next_block_ = 0;
};

RunRecord::RunRecord(RecordOptions options, std::shared_ptr<Board> board)
    : options_(std::move(options)),
      block_began_(Clock::now()),
      exceptions_at_start_(std::uncaught_exceptions()) {
  if (options_.world_size > 1 && !board)
    throw Error("A run record of " + std::to_string(options_.world_size) +
                " ranks was asked for, but there is no board on which they meet. Pass one.");
  if (options_.rank == 0)
    part_ = std::make_unique<Writer>(options_, std::move(board));
  else
    part_ = std::make_unique<Sender>(options_, std::move(board));
}

RunRecord::~RunRecord() {
  const bool failing = std::uncaught_exceptions() > exceptions_at_start_;
  end(failing ? milliseconds(0) : options_.end_wait, "", /*quiet=*/options_.rank != 0);
}

template <class Work>
void RunRecord::attempt(Work work, bool quiet) {
  if (!part_) return;
  try {
    work();
  } catch (const std::exception& error) {
    part_.reset();
    if (!quiet)
      std::fprintf(stderr, "ivme: the run record ends early (rank %d): %s\n", options_.rank, error.what());
  }
}

void RunRecord::facts(const Facts& facts) {
  attempt([&] { part_->facts(facts); });
}

void RunRecord::step(StepEntry entry) {
  if (ended_) {
    if (!std::exchange(told_, true) && options_.rank == 0)
      std::fprintf(stderr,
                   "ivme: steps after log_final() are not in the run record; call it once, at the end.\n");
    return;
  }
  attempt([&] {
    if (!options_.micro) entry.micro_losses.clear();
    part_->add(std::move(entry));
  });
  if (++steps_in_block_ >= options_.block_steps || Clock::now() - block_began_ >= options_.block_time)
    publish();
}

void RunRecord::publish() {
  attempt([&] { part_->close_block(); });
  steps_in_block_ = 0;
  block_began_ = Clock::now();
}

void RunRecord::final(const Numbers& metrics) {
  end(options_.final_wait, final_line(metrics), /*quiet=*/false);
  ended_ = true;
}

void RunRecord::end(milliseconds wait, const std::string& last_line, bool quiet) {
  attempt([&] { part_->end(wait, last_line); }, quiet);
  part_.reset();
}

}  // namespace ivme::record
