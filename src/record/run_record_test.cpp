#include "record/run_record.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "ivme/error.h"
#include "record/scratch_file.h"

namespace ivme::record {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

class MemoryBoard : public Board {
 public:
  void set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    if (broken) throw std::runtime_error("connection reset by peer");
    if (!values_.emplace(key, value).second) throw std::logic_error(key + " is used twice");
    most_ = std::max(most_, values_.size());
  }
  std::optional<std::string> take(const std::string& key) override {
    std::lock_guard lock(mutex_);
    if (broken) throw std::runtime_error("connection reset by peer");
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    std::string value = std::move(found->second);
    values_.erase(found);
    return value;
  }
  std::size_t size() const { return values_.size(); }
  std::size_t most() const { return most_; }
  std::atomic<bool> broken = false;

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::size_t most_ = 0;
};

StepEntry entry(int64_t step, double loss) {
  StepEntry e;
  e.step = step;
  e.loss = loss;
  e.samples = 64;
  e.order = static_cast<uint64_t>(step);
  e.micro_losses = {loss, loss};
  return e;
}

std::vector<Json> lines(const std::string& text) {
  std::vector<Json> parsed;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) parsed.push_back(Json::parse(line));
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  return parsed;
}

class RunRecordTest : public testing::Test {
 protected:
  RecordOptions options(int rank, int world_size) {
    RecordOptions o;
    o.path = scratch.path();
    o.rank = rank;
    o.world_size = world_size;
    o.block_steps = 4;
    o.block_time = 1h;
    o.final_wait = o.end_wait = 60s;
    return o;
  }
  std::vector<Json> written() { return lines(scratch.text()); }

  ScratchFile scratch;
  std::shared_ptr<MemoryBoard> board = std::make_shared<MemoryBoard>();
};

TEST_F(RunRecordTest, one_rank_writes_facts_steps_and_the_final_line_without_a_board) {
  RunRecord record(options(0, 1), nullptr);
  Facts facts;
  facts.seed = 42;
  record.facts(facts);
  EXPECT_EQ(written().size(), 1u);
  for (int64_t step = 1; step <= 5; ++step) record.step(entry(step, 1.0 / static_cast<double>(step)));
  EXPECT_EQ(written().size(), 5u);  // a block of 4 and the facts
  record.final({{"accuracy", 0.9}});
  const auto all = written();
  ASSERT_EQ(all.size(), 7u);
  EXPECT_EQ(all[0]["seed"], 42);
  for (std::size_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(all[i]["kind"], "step");
    EXPECT_EQ(all[i]["step"], i);
    EXPECT_EQ(all[i]["samples"], 64 * i);
    EXPECT_EQ(all[i]["loss"].get<double>(), 1.0 / static_cast<double>(i));
    EXPECT_EQ(all[i]["order"], "000000000000000" + std::to_string(i));
  }
  EXPECT_EQ(all[6], Json::parse(R"({"kind":"final","metrics":{"accuracy":0.9},"complete":true})"));
}

TEST_F(RunRecordTest, ranks_in_threads_meet_in_one_file) {
  constexpr int kRanks = 4;
  constexpr int64_t kSteps = 403;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      RecordOptions o = options(rank, kRanks);
      o.micro = true;
      RunRecord record(o, board);
      record.facts({});
      for (int64_t step = 1; step <= kSteps; ++step) {
        if (step % 100 == rank) std::this_thread::sleep_for(2ms);
        record.step(entry(step, static_cast<double>(step + rank)));
      }
      record.publish();
      record.final({});
    });
  for (std::thread& rank : ranks) rank.join();
  const auto all = written();
  ASSERT_EQ(all.size(), 3 * kSteps + 2);
  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto at = static_cast<std::size_t>(3 * step);
    EXPECT_EQ(all[at - 2]["micro"], 2 * step - 2);
    EXPECT_EQ(all[at - 1]["micro"], 2 * step - 1);
    EXPECT_EQ(all[at - 1]["loss_ranks"].size(), 4u);
    EXPECT_EQ(all[at]["step"], step);
    EXPECT_EQ(all[at]["loss"], static_cast<double>(step) + 1.5);
    EXPECT_EQ(all[at]["samples"], 4 * 64 * step);
  }
  EXPECT_EQ(all.back()["kind"], "final");
  EXPECT_EQ(board->size(), 0u);
}

TEST_F(RunRecordTest, uneven_ranks_end_without_waiting_and_count_where_they_took_part) {
  const auto start = Clock::now();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      RunRecord record(options(rank, 3), board);
      for (int64_t step = 1; step <= 5 + rank; ++step) record.step(entry(step, rank));
      if (rank != 1) record.final({});
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_LT(Clock::now() - start, 20s);
  const auto all = written();
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all[4]["loss"], 1.0);
  EXPECT_EQ(all[5]["loss"], 1.5);
  EXPECT_EQ(all[6]["loss"], 2.0);
  EXPECT_EQ(all[6]["samples"], 64 * (3 * 5 + 2 + 1));
  EXPECT_EQ(all[7]["kind"], "final");
}

TEST_F(RunRecordTest, final_on_the_main_rank_alone_does_not_wait_long_when_the_steps_are_whole) {
  RunRecord other(options(1, 2), board), record(options(0, 2), board);
  other.step(entry(1, 3));
  record.step(entry(1, 1));
  other.publish();
  const auto start = Clock::now();
  record.final({});
  EXPECT_LT(Clock::now() - start, 20s);
  const auto all = written();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["loss"], 2.0);
}

TEST_F(RunRecordTest, a_rank_that_died_costs_a_bounded_wait_and_its_steps_are_not_written) {
  RunRecord other(options(1, 2), board);
  for (int64_t step = 1; step <= 6; ++step) other.step(entry(step, 1));
  auto o = options(0, 2);
  o.final_wait = 100ms;
  RunRecord record(o, board);
  for (int64_t step = 1; step <= 6; ++step) record.step(entry(step, 1));
  const auto start = Clock::now();
  record.final({});
  EXPECT_GE(Clock::now() - start, 100ms);
  EXPECT_LT(Clock::now() - start, 20s);
  const auto all = written();
  ASSERT_EQ(all.size(), 5u);  // the block of 4 that was left, and the final line
  EXPECT_EQ(all[3]["step"], 4);
  EXPECT_EQ(all[4]["kind"], "final");
}

TEST_F(RunRecordTest, a_slow_rank_is_waited_for_at_the_end_but_not_before) {
  RunRecord record(options(0, 2), board);
  for (int64_t step = 1; step <= 9; ++step) record.step(entry(step, 1));
  record.publish();
  EXPECT_TRUE(written().empty());
  std::thread slow([&] {
    RunRecord other(options(1, 2), board);
    std::this_thread::sleep_for(400ms);
    for (int64_t step = 1; step <= 9; ++step) other.step(entry(step, 1));
  });
  record.final({});
  slow.join();
  EXPECT_EQ(written().size(), 10u);
}

TEST_F(RunRecordTest, the_destructor_keeps_the_steps_and_does_not_claim_completeness) {
  {
    RunRecord record(options(0, 2), board);
    RunRecord other(options(1, 2), board);  // destroyed first
    record.step(entry(1, 1));
    other.step(entry(1, 2));
  }
  const auto all = written();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["loss"], 1.5);
}

TEST_F(RunRecordTest, a_passing_exception_is_not_held_up) {
  const auto start = Clock::now();
  try {
    RunRecord record(options(0, 2), board);
    record.step(entry(1, 1));
    throw std::runtime_error("the program fails");
  } catch (const std::runtime_error&) {
  }
  EXPECT_LT(Clock::now() - start, 20s);
  EXPECT_TRUE(written().empty());
}

TEST_F(RunRecordTest, a_block_closes_by_time_too) {
  auto o = options(0, 1);
  o.block_steps = 1'000'000;
  o.block_time = 20ms;
  RunRecord record(o, nullptr);
  record.step(entry(1, 1));
  std::this_thread::sleep_for(30ms);
  record.step(entry(2, 1));
  EXPECT_EQ(written().size(), 2u);
}

TEST_F(RunRecordTest, two_records_of_one_process_do_not_meet) {
  ScratchFile second;
  auto a0 = options(0, 2), a1 = options(1, 2), b0 = options(0, 2), b1 = options(1, 2);
  b0.name = b1.name = "1";
  b0.path = b1.path = second.path();
  {
    RunRecord ra0(a0, board), rb0(b0, board), ra1(a1, board), rb1(b1, board);
    ra0.step(entry(1, 1));
    ra1.step(entry(1, 1));
    rb0.step(entry(1, 5));
    rb1.step(entry(1, 5));
  }
  ASSERT_EQ(written().size(), 1u);
  EXPECT_EQ(written()[0]["loss"], 1.0);
  ASSERT_EQ(lines(second.text()).size(), 1u);
  EXPECT_EQ(lines(second.text())[0]["loss"], 5.0);
}

TEST_F(RunRecordTest, a_lost_board_ends_the_record_and_not_the_run) {
  testing::internal::CaptureStderr();
  {
    RunRecord record(options(0, 2), board), other(options(1, 2), board);
    for (int64_t step = 1; step <= 4; ++step) other.step(entry(step, 1));
    for (int64_t step = 1; step <= 4; ++step) record.step(entry(step, 1));
    board->broken = true;
    for (int64_t step = 5; step <= 20; ++step) record.step(entry(step, 1));
    record.final({});
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ivme: the run record ends early (rank 0): connection reset by peer\n");
  const auto all = written();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[3]["step"], 4);
}

TEST_F(RunRecordTest, steps_after_the_end_are_dropped_and_that_is_said_once) {
  testing::internal::CaptureStderr();
  RunRecord record(options(0, 1), nullptr);
  record.final({});
  record.step(entry(1, 1));
  record.step(entry(2, 1));
  record.final({});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ivme: steps after log_final() are not in the run record; call it once, at the end.\n");
  EXPECT_EQ(written().size(), 1u);
}

TEST_F(RunRecordTest, what_cannot_work_is_refused_at_the_start) {
  EXPECT_THROW(RunRecord(options(0, 2), nullptr), Error);
  auto o = options(0, 1);
  o.path = "/no/such/folder/run.jsonl";
  EXPECT_THROW(RunRecord(o, nullptr), Error);
  o.rank = 1;
  o.world_size = 2;
  EXPECT_NO_THROW(RunRecord(o, board));  // only rank 0 opens the file
}

long resident_kib() {
  std::ifstream status("/proc/self/statm");
  long total = 0, resident = 0;
  status >> total >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

TEST_F(RunRecordTest, two_hundred_thousand_steps_cost_microseconds_and_no_memory) {
  auto fast = [&](int rank) {
    auto o = options(rank, 2);
    o.path = "/dev/null";
    o.block_steps = 256;
    return o;
  };
  RunRecord other(fast(1), board), record(fast(0), board);
  constexpr int64_t kSteps = 200'000;
  const long before = resident_kib();
  const auto start = Clock::now();
  for (int64_t step = 1; step <= kSteps; ++step) {
    other.step(entry(step, 0.1 * static_cast<double>(step)));
    record.step(entry(step, 0.3 * static_cast<double>(step)));
  }
  const std::chrono::duration<double, std::micro> took = Clock::now() - start;
  EXPECT_LT(took.count() / kSteps, 100);  // about 10 for both ranks, on an idle machine
  EXPECT_LT(resident_kib() - before, 8 * 1024);
  EXPECT_LE(board->most(), 2u);
  other.final({});
  RecordProperty("microseconds_per_step_of_two_ranks", std::to_string(took.count() / kSteps));
}

}  // namespace
}  // namespace ivme::record
