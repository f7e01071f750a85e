#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace ivme::detail {

// Makes one thing after the other on a thread of its own, at most `depth` ahead of those that were taken. The
// order is that of the calls of `make`, which only this thread calls. take() and the destructor belong to one
// other thread.
class Prefetch {
 public:
  using Item = std::shared_ptr<void>;
  // `make` returns null when there are no more; what it throws, take() throws in its place, after what was
  // made before, and nothing more is made. depth >= 1.
  Prefetch(std::function<Item()> make, size_t depth);
  ~Prefetch();  // waits for a call of `make` that is under way; what nobody took is dropped
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  Item take();  // waits for the next; null after the last, and from then on

 private:
  void run();

  std::function<Item()> make_;
  size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> made_;
  std::exception_ptr failure_;
  bool ended_ = false, stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace ivme::detail
