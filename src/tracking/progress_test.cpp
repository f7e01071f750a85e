#include "ivme/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace ivme {
namespace {

// A screen without a clock of its own.
struct Screen {
  double now = 100;
  int columns = 100;
  std::string text;

  ProgressOutput plain() {
    ProgressOutput output;
    output.columns = [this] { return columns; };
    output.seconds = [this] { return now; };
    output.write = [this](std::string_view more) { text += more; };
    return output;
  }
  ProgressOutput terminal() {
    ProgressOutput output = plain();
    output.terminal = true;
    return output;
  }
  std::string take() { return std::exchange(text, {}); }
};

TEST(PlainProgress, prints_about_every_tenth_and_the_last) {
  Screen screen;
  Progress bar({.total = 938, .label = "epoch 1/3", .output = screen.plain()});
  for (int i = 0; i < 938; ++i) {
    screen.now += 1 / 64.0;
    bar.advance(1, {{"loss", 0.5 + i / 10000.0}});
  }
  EXPECT_EQ(screen.text,
            "epoch 1/3  94/938  10%  loss 0.5093  64 it/s\n"
            "epoch 1/3  188/938  20%  loss 0.5187  64 it/s\n"
            "epoch 1/3  282/938  30%  loss 0.5281  64 it/s\n"
            "epoch 1/3  376/938  40%  loss 0.5375  64 it/s\n"
            "epoch 1/3  469/938  50%  loss 0.5468  64 it/s\n"
            "epoch 1/3  563/938  60%  loss 0.5562  64 it/s\n"
            "epoch 1/3  657/938  70%  loss 0.5656  64 it/s\n"
            "epoch 1/3  751/938  80%  loss 0.575  64 it/s\n"
            "epoch 1/3  845/938  90%  loss 0.5844  64 it/s\n"
            "epoch 1/3  938/938  100%  loss 0.5937  64 it/s  in 0:15\n");
}

TEST(PlainProgress, a_short_loop_prints_its_last_line_alone) {
  Screen screen;
  Progress bar({.total = 5, .output = screen.plain()});
  for (int i = 0; i < 5; ++i) {
    screen.now += 0.0625;
    bar.advance();
  }
  EXPECT_EQ(screen.take(), "5/5  100%  16 it/s  in 0:00\n");
  bar.advance();
  bar.finish();
  EXPECT_EQ(screen.text, "");
}

TEST(PlainProgress, a_slow_loop_prints_every_ten_seconds) {
  Screen screen;
  Progress bar({.total = 1000, .label = "slow", .output = screen.plain()});
  for (int i = 0; i < 6; ++i) {
    screen.now += 4;
    bar.advance();
  }
  EXPECT_EQ(screen.take(), "slow  3/1000  0%  4.0 s/it\nslow  6/1000  0%  4.0 s/it\n");
}

TEST(PlainProgress, an_unknown_total_counts_and_the_destructor_finishes) {
  Screen screen;
  {
    Progress bar({.label = "evaluating", .output = screen.plain()});
    for (int i = 0; i < 3; ++i) {
      screen.now += 7;
      bar.advance(10, {{"loss", 2}, {"lr", 1e-5}});
    }
  }
  EXPECT_EQ(screen.text,
            "evaluating  20  loss 2  lr 1e-05  1.4 it/s\n"
            "evaluating  30  loss 2  lr 1e-05  1.4 it/s  in 0:21\n");
}

TEST(PlainProgress, values_stay_until_others_are_given_and_may_be_nan) {
  Screen screen;
  Progress bar({.total = 4, .output = screen.plain()});
  bar.advance(1, {{"loss", std::strtod("nan", nullptr)}});
  bar.advance(1);
  bar.finish();
  EXPECT_EQ(screen.text, "2/4  50%  loss nan  in 0:00\n");
}

TEST(TerminalProgress, redraws_one_line) {
  Screen screen;
  Progress bar({.total = 200, .label = "epoch 1/3", .output = screen.terminal()});
  EXPECT_EQ(screen.take(), "\repoch 1/3    0% --------------------  0/200\x1b[K");
  screen.now += 2;
  bar.advance(50, {{"loss", 0.5312}});
  EXPECT_EQ(screen.take(),
            "\repoch 1/3   25% =====---------------  50/200  25 it/s  0:06 left  loss 0.5312\x1b[K");
  screen.now += 3698;
  bar.advance(150, {{"loss", 0.25}});
  EXPECT_EQ(screen.take(),
            "\repoch 1/3  100% ====================  200/200  18.5 s/it  in 1:01:40  loss 0.25\x1b[K\n");
  bar.finish();
  EXPECT_EQ(screen.text, "");
}

TEST(TerminalProgress, draws_at_most_ten_times_a_second) {
  Screen screen;
  int draws = 0;
  ProgressOutput output = screen.terminal();
  output.write = [&](std::string_view) { ++draws; };
  Progress bar({.total = 100'000, .output = output});
  for (int i = 0; i < 4096; ++i) {
    screen.now += 1 / 1024.0;
    bar.advance();
  }
  EXPECT_GE(draws, 35);
  EXPECT_LE(draws, 41);
}

TEST(TerminalProgress, a_narrow_terminal_loses_the_bar_then_values_then_the_end_of_the_line) {
  Screen screen;
  Progress bar({.total = 200, .label = "épochs", .output = screen.terminal()});
  const auto drawn = [&](int columns) {
    screen.take();
    screen.columns = columns;
    screen.now += 1;
    bar.advance(1, {{"loss", 0.5}, {"lr", 0.1}});
    return screen.take();
  };
  EXPECT_EQ(drawn(66), "\répochs    0% ------  1/200  1.0 it/s  3:19 left  loss 0.5  lr 0.1\x1b[K");
  EXPECT_EQ(drawn(60), "\répochs    1%  2/200  1.0 it/s  3:18 left  loss 0.5  lr 0.1\x1b[K");
  EXPECT_EQ(drawn(56), "\répochs    1%  3/200  1.0 it/s  3:17 left  loss 0.5\x1b[K");
  EXPECT_EQ(drawn(46), "\répochs    2%  4/200  1.0 it/s  3:16 left\x1b[K");
  EXPECT_EQ(drawn(8), "\répochs \x1b[K");
  EXPECT_EQ(drawn(2), "\ré\x1b[K");
}

TEST(TerminalProgress, an_unknown_total_has_no_bar) {
  Screen screen;
  Progress bar({.label = "reading", .output = screen.terminal()});
  screen.now += 61;
  bar.advance(122);
  bar.finish();
  EXPECT_EQ(screen.text,
            "\rreading  0  0:00\x1b[K\rreading  122  2.0 it/s  1:01\x1b[K\rreading  122  2.0 it/s  in "
            "1:01\x1b[K\n");
}

TEST(TerminalProgress, colour_and_unicode_only_where_allowed) {
  Screen screen;
  ProgressOutput output = screen.terminal();
  output.unicode = true;
  screen.columns = 28;
  Progress plain({.total = 2, .output = output});
  screen.take();
  plain.advance();
  plain.finish();
  EXPECT_EQ(screen.take(), "\r 50% ━━━━┄┄┄┄  1/2  in 0:00\x1b[K\n");
  output.color = true;
  Progress colored({.total = 2, .output = output});
  screen.take();
  colored.advance();
  colored.finish();
  EXPECT_EQ(screen.take(), "\r 50% \x1b[32m━━━━\x1b[2;39m━━━━\x1b[0m  1/2  in 0:00\x1b[K\n");
}

TEST(Progress, a_disabled_bar_prints_nothing_and_asks_for_no_time) {
  ProgressOutput output;  // its empty functions would throw
  Progress bar({.total = 2, .enabled = false, .output = output});
  bar.advance(1, {{"loss", 1}});
  bar.advance();
  bar.finish();
}

TEST(Progress, the_environment_decides_what_standard_error_is) {
  for (const char* name : {"IVME_TTY", "TERM", "NO_COLOR", "COLUMNS", "LANG", "LC_CTYPE", "LC_ALL"})
    unsetenv(name);
  setenv("IVME_TTY", "1", 1);
  setenv("COLUMNS", "123", 1);
  ProgressOutput output = ProgressOutput::standard_error();
  EXPECT_TRUE(output.terminal);
  EXPECT_TRUE(output.color);
  EXPECT_FALSE(output.unicode);
  EXPECT_EQ(output.columns(), 123);

  setenv("NO_COLOR", "1", 1);
  setenv("LANG", "C.UTF-8", 1);
  output = ProgressOutput::standard_error();
  EXPECT_FALSE(output.color);
  EXPECT_TRUE(output.unicode);
  setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(ProgressOutput::standard_error().unicode);

  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(ProgressOutput::standard_error().terminal);
  unsetenv("TERM");
  setenv("IVME_TTY", "0", 1);
  EXPECT_FALSE(ProgressOutput::standard_error().terminal);
  const double before = output.seconds();
  EXPECT_GE(output.seconds(), before);
}

TEST(Progress, standard_error_gets_plain_lines_when_it_is_a_file) {
  setenv("IVME_TTY", "0", 1);
  testing::internal::CaptureStderr();
  Progress bar({.total = 1, .label = "test"});
  bar.advance();
  EXPECT_EQ(testing::internal::GetCapturedStderr().substr(0, 15), "test  1/1  100%");
}

}  // namespace
}  // namespace ivme
