#include "data/starvation.h"

#include <cstdio>

namespace ivme::detail {
namespace {

double seconds(Starvation::Time from, Starvation::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string sentence(double waited, double total) {
  char text[512];
  std::snprintf(
      text, sizeof text,
      "ivme: the loop waited for its loader %.0f %% of the time, %.2f s of %.2f s over %d batches, and "
      "the device with it. Make a batch cheaper: get_batch instead of get, work that is the same in "
      "every epoch done once before the training. Said once.\n",
      100 * waited / total, waited, total, static_cast<int>(Starvation::window));
  return text;
}

}  // namespace

std::optional<std::string> Starvation::batch_came(Time asked, Time now) {
  const std::optional<Time> before = last_;
  last_ = now;
  if (told_ || !before || ++batches_ <= warm_up) return {};
  waited_ += seconds(asked, now);
  total_ += seconds(*before, now);
  if (++counted_ < window) return {};
  const double waited = waited_, total = total_;
  counted_ = 0;
  waited_ = total_ = 0;
  if (waited <= total / 2 || waited < 1e-3 * window) return {};
  told_ = true;
  return sentence(waited, total);
}

}  // namespace ivme::detail
