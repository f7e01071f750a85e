#include "data/prefetch.h"

#include <utility>

namespace ivme::detail {

Prefetch::Prefetch(std::function<Item()> make, size_t depth)
    : make_(std::move(make)), depth_(depth), thread_([this] { run(); }) {}

Prefetch::~Prefetch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetch::run() {
  for (bool more = true; more;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || made_.size() < depth_; });
      if (stop_) return;
    }
    Item item;
    std::exception_ptr failure;
    try {
      item = make_();
    } catch (...) {
      failure = std::current_exception();
    }
    more = item != nullptr;
    {
      std::lock_guard lock(mutex_);
      if (more)
        made_.push_back(std::move(item));
      else
        ended_ = true;
      failure_ = std::move(failure);
    }
    changed_.notify_all();
  }
}

Prefetch::Item Prefetch::take() {
  Item item;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ || !made_.empty(); });
    if (made_.empty()) {
      if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
      return nullptr;
    }
    item = std::move(made_.front());
    made_.pop_front();
  }
  changed_.notify_all();
  return item;
}

}  // namespace ivme::detail
