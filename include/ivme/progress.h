#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ivme {

// Where a progress bar goes and how it may look. Programs leave this alone; tests and other outputs set it.
struct ProgressOutput {
  bool terminal = false;  // one line, redrawn in place; else plain lines
  bool color = false;
  bool unicode = false;
  std::function<int()> columns;                 // width of the terminal, asked at each redraw
  std::function<double()> seconds;              // a clock that never goes back
  std::function<void(std::string_view)> write;  // gets whole lines or whole redraws

  // Standard error. It is a terminal if isatty says so or IVME_TTY=1 (set by `ivme launch`, which stands
  // between the program and the terminal), and not if IVME_TTY=0 or TERM=dumb. Width: COLUMNS, else the
  // terminal's, else
  // 80. Colour unless NO_COLOR is set; Unicode if LC_ALL, LC_CTYPE or LANG says UTF-8.
  static ProgressOutput standard_error();
};

struct ProgressOptions {
  int64_t total = 0;  // how many advances of 1 make the whole; 0: unknown
  std::string label{};
  bool enabled = true;  // give is_main_process() here: a disabled bar costs nothing and prints nothing
  std::optional<ProgressOutput> output{};  // default: standard error
};

// A progress bar for a training or evaluation loop:
//
//   ivme::Progress bar({.total = loader.size(), .label = "epoch 1/3", .enabled = is_main});
//   for (...) bar.advance(1, {{"loss", loss}});
//
// On a terminal one line is redrawn, at most ten times a second. Elsewhere a line is printed for about every
// tenth of the whole (but not more than one a second), every 10 s, and at the end:
//
//   epoch 1/3  188/938  20%  loss 0.5312  212 it/s
//
// The bar is finished by reaching its total, by finish() or by the destructor, whichever is first; what
// follows is ignored. Nothing is thrown. Not for several threads at once.
class Progress {
 public:
  using Values = std::initializer_list<std::pair<std::string_view, double>>;

  explicit Progress(ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `steps` more are done; `values` are shown beside them until others are given.
  void advance(int64_t steps = 1, Values values = {}) {
    if (state_) advance_enabled(steps, values);
  }
  void finish() {
    if (state_) finish_enabled();
  }

 private:
  void advance_enabled(int64_t steps, Values values);
  void finish_enabled();

  struct State;
  std::unique_ptr<State> state_;  // null when disabled or finished
};

}  // namespace ivme
