#pragma once
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ivme/process.h"
#include "process/environment.h"
#include "process/shared_average.h"
#include "record/board.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace ivme {

// The ranks of this run: a c10d process group (Gloo, and NCCL on GPUs) and its store. Used from one thread.
class Group {
 public:
  // Joins the other ranks; returns once all are there. While one is held, the same is returned again. Throws
  // Error naming the address when they cannot be reached within the timeout.
  static std::shared_ptr<Group> join(const ProcessFacts& facts, c10::DeviceType device,
                                     std::chrono::milliseconds timeout);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return facts_.process_index; }
  int size() const { return facts_.num_processes; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const { return group_; }

  // For gradients on the CPU, when all ranks are on this host and could map its memory; else null.
  // IVME_ALL_REDUCE=gloo leaves it null.
  const std::shared_ptr<SharedAverage>& shared_average() const { return memory_; }

  // Runs `call`, which contains a collective. A failure becomes an Error that names `what` and the ranks that
  // did not take part; the group is dead from then on.
  void run(const std::string& what, const std::function<void()>& call);

  // Returns once every rank called it. Throws Error after the timeout, naming `what` and the missing ranks.
  void barrier(const std::string& what);

  // Rank 0, which serves the store, waits a moment for the others to have said so too. The destructor does it
  // unless something went wrong.
  void say_goodbye();

  // The store as a board for the run record.
  std::shared_ptr<record::Board> board();

 private:
  Group(const ProcessFacts& facts, c10::DeviceType device, std::chrono::milliseconds timeout);
  void share_memory();
  [[noreturn]] void fail(const std::string& what, const std::string& reason);
  std::string missing_ranks(const std::string& prefix, std::chrono::milliseconds wait);

  ProcessFacts facts_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<SharedAverage> memory_;
  int64_t barriers_ = 0;
  bool failed_ = false;
};

// "1", "1 and 3", "1, 2 and 3"
std::string enumerate(const std::vector<int>& ranks);

}  // namespace ivme
