#include "gradients/shared_memory_hook.h"

#include <ATen/core/TensorBody.h>
#include <ATen/core/ivalue.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "process/shared_average.h"

namespace ivme {
namespace {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

// Averages tensors one after the other in a thread of its own.
class Worker {
 public:
  explicit Worker(std::shared_ptr<SharedAverage> average)
      : average_(std::move(average)), thread_([this] { work(); }) {}
  ~Worker() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void submit(at::Tensor tensor, Future done) {
    {
      std::lock_guard lock(mutex_);
      tasks_.emplace_back(std::move(tensor), std::move(done));
    }
    changed_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto [tensor, done] = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      try {
        if (tensor.scalar_type() == at::kFloat)
          average_->average(tensor.mutable_data_ptr<float>(), tensor.numel());
        else
          average_->average(tensor.mutable_data_ptr<double>(), tensor.numel());
        done->markCompleted(tensor);
      } catch (...) {
        done->setError(std::current_exception());
      }
      lock.lock();
    }
  }

  std::shared_ptr<SharedAverage> average_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<at::Tensor, Future>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

class Hook : public c10d::CppCommHookInterface<std::shared_ptr<Worker>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  Future runHook(c10d::GradBucket& bucket) override {
    auto done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    state_->submit(bucket.getBuffer(), done);
    return done;
  }
};

// One worker for each SharedAverage that is in use.
std::shared_ptr<Worker> worker_for(const std::shared_ptr<SharedAverage>& average) {
  static std::mutex mutex;
  static std::weak_ptr<Worker> last;
  static const SharedAverage* of = nullptr;
  std::lock_guard lock(mutex);
  auto worker = last.lock();
  if (!worker || of != average.get()) {
    worker = std::make_shared<Worker>(average);
    last = worker;
    of = average.get();
  }
  return worker;
}

}  // namespace

std::unique_ptr<c10d::CommHookInterface> shared_memory_hook(const std::shared_ptr<SharedAverage>& average) {
  return std::make_unique<Hook>(worker_for(average));
}

}  // namespace ivme
