#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ivme::detail {

// How long a loop waits for its batches, over all passes of a loader. The first ones do not count: programs
// are compiled then.
class Starvation {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int64_t warm_up = 10, window = 50;

  void pass_begins() { last_.reset(); }
  // A batch came at `now`; the loop had waited for it since `asked`. After `window` batches, what to say if
  // the loop waited more than half of the time, and at least a millisecond a batch: once.
  std::optional<std::string> batch_came(Time asked, Time now);

 private:
  int64_t batches_ = 0, counted_ = 0;
  double waited_ = 0, total_ = 0;  // seconds
  bool told_ = false;
  std::optional<Time> last_;  // when the batch before came, in this pass
};

}  // namespace ivme::detail
