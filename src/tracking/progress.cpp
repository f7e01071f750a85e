#include "ivme/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace ivme {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kTenthSeconds = 1;
constexpr double kPlainSeconds = 10;
constexpr int kLongestBar = 20;
constexpr int kShortestBar = 6;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_terminal() {
  if (variable("TERM") == "dumb" || variable("IVME_TTY") == "0") return false;
  return variable("IVME_TTY") == "1" || ::isatty(STDERR_FILENO);
}

bool is_utf8() {
  std::string_view locale;
  for (const char* name : {"LANG", "LC_CTYPE", "LC_ALL"})
    if (!variable(name).empty()) locale = variable(name);
  for (const char* name : {"UTF-8", "utf8", "utf-8", "UTF8"})
    if (locale.find(name) != std::string_view::npos) return true;
  return false;
}

int terminal_columns() {
  if (const int columns = std::atoi(std::string(variable("COLUMNS")).c_str()); columns > 0) return columns;
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

int width(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string cut(const std::string& text, int columns) {
  std::size_t end = 0;
  for (; end < text.size(); ++end)
    if (begins_character(text[end]) && columns-- <= 0) break;
  return text.substr(0, end);
}

std::string duration(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole >= 3600) return format("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return format("%lld:%02lld", whole / 60, whole % 60);
}

std::string rate(double per_second) {
  if (per_second >= 10) return format("%.0f it/s", per_second);
  if (per_second >= 1) return format("%.1f it/s", per_second);
  return format("%.1f s/it", 1 / per_second);
}

std::string repeat(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

ProgressOutput ProgressOutput::standard_error() {
  ProgressOutput output;
  output.terminal = is_terminal();
  output.color = variable("NO_COLOR").empty();
  output.unicode = is_utf8();
  output.columns = terminal_columns;
  output.seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  output.write = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  return output;
}

struct Progress::State {
  ProgressOptions options;
  ProgressOutput output;
  double began;
  double now;
  double shown;  // when the last line was printed or drawn
  int64_t done = 0;
  int64_t shown_tenth = 0;
  std::vector<std::pair<std::string, double>> values;

  explicit State(ProgressOptions given)
      : options(std::move(given)),
        output(options.output ? *options.output : ProgressOutput::standard_error()),
        began(output.seconds()),
        now(began),
        shown(began) {
    if (output.terminal) draw(false);
  }

  int64_t parts_done(int64_t parts) const {
    if (options.total <= 0) return 0;
    return static_cast<int64_t>(static_cast<double>(std::min(done, options.total)) *
                                static_cast<double>(parts) / static_cast<double>(options.total));
  }

  std::string count() const {
    std::string text = std::to_string(done);
    if (options.total > 0) text.append("/").append(std::to_string(options.total));
    return text;
  }

  std::string speed() const {
    return done > 0 && now > began ? "  " + rate(static_cast<double>(done) / (now - began)) : "";
  }

  std::string time(bool last) const {
    if (last) return "  in " + duration(now - began);
    if (options.total <= 0) return "  " + duration(now - began);
    if (done == 0) return "";
    const auto left = static_cast<double>(std::max<int64_t>(options.total - done, 0));
    return "  " + duration((now - began) * left / static_cast<double>(done)) + " left";
  }

  std::string bar(int columns) const {
    const int full = static_cast<int>(parts_done(columns));
    const std::string done_part = repeat(output.unicode ? "━" : "=", full);
    if (!output.color) return done_part + repeat(output.unicode ? "┄" : "-", columns - full);
    return "\x1b[32m" + done_part + "\x1b[2;39m" + repeat(output.unicode ? "━" : "-", columns - full) +
           "\x1b[0m";
  }

  void draw(bool last) {
    const int columns = output.columns() - 1;  // the last column would wrap on some terminals
    std::string head = options.label;
    if (options.total > 0)
      head.append(head.empty() ? "" : "  ").append(format("%3d%%", static_cast<int>(parts_done(100))));
    std::string tail = (head.empty() ? "" : "  ") + count() + speed() + time(last);
    for (const auto& [name, value] : values) {
      const std::string more = "  " + name + format(" %.4g", value);
      if (width(head) + width(tail) + width(more) > columns) break;
      tail += more;
    }
    const int room = std::min(kLongestBar, columns - width(head) - width(tail) - 1);
    std::string line =
        options.total > 0 && room >= kShortestBar ? head + " " + bar(room) + tail : cut(head + tail, columns);
    output.write("\r" + line + "\x1b[K" + (last ? "\n" : ""));
    shown = now;
  }

  void print(bool last) {
    std::string line = options.label.empty() ? "" : options.label + "  ";
    line += count();
    if (options.total > 0) line += format("  %d%%", static_cast<int>(parts_done(100)));
    for (const auto& [name, value] : values) line += "  " + name + format(" %.4g", value);
    output.write(line + speed() + (last ? time(true) : "") + "\n");
    shown = now;
    shown_tenth = parts_done(10);
  }

  bool due() const {
    if (output.terminal) return now - shown >= kRedrawSeconds;
    return now - shown >= kPlainSeconds || (parts_done(10) > shown_tenth && now - shown >= kTenthSeconds);
  }

  void show(bool last) { output.terminal ? draw(last) : print(last); }
};

Progress::Progress(ProgressOptions options) {
  if (options.enabled) state_ = std::make_unique<State>(std::move(options));
}

Progress::~Progress() { finish(); }

void Progress::advance_enabled(int64_t steps, Values values) {
  State& s = *state_;
  s.done += steps;
  s.now = s.output.seconds();
  if (values.size() > 0) s.values.assign(values.begin(), values.end());
  if (s.options.total > 0 && s.done >= s.options.total)
    finish_enabled();
  else if (s.due())
    s.show(false);
}

void Progress::finish_enabled() {
  state_->now = state_->output.seconds();
  state_->show(true);
  state_.reset();
}

}  // namespace ivme
