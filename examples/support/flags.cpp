#include "support/flags.h"

#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <limits>
#include <numeric>

namespace examples {
namespace {

using Words = std::vector<std::string>;

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Letters to insert, drop or replace to turn one word into the other.
size_t distance(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = diagonal + (from[i - 1] != to[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string nearest(const std::string& word, const Words& words) {
  return *std::min_element(words.begin(), words.end(), [&](const std::string& a, const std::string& b) {
    return distance(word, a) < distance(word, b);
  });
}

// Validators answer with an empty string when the value is fine.
CLI::Validator one_of(const Words& words) {
  const auto check = [words](const std::string& value) -> std::string {
    if (std::find(words.begin(), words.end(), value) != words.end()) return "";
    return "there is no '" + value + "'; the nearest is '" + nearest(value, words) + "' (" +
           CLI::detail::join(words, ", ") + ")";
  };
  return CLI::Validator(check, "");
}

template <class T>
CLI::Validator number_from(T least) {
  const auto check = [least](const std::string& text) -> std::string {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string kind = std::is_integral_v<T> ? "a whole number" : "a number";
    if (error == std::errc::result_out_of_range) return "'" + text + "' is too large; give a smaller number";
    if (error != std::errc() || end != text.data() + text.size())
      return "'" + text + "' is not " + kind + "; give one such as 1";
    if (value != value) return "'" + text + "' is not a number; give one such as 1";
    if (value < least)
      return "'" + text + "' is below the least value; give " + kind + " from " +
             CLI::detail::to_string(least) + " on";
    return "";
  };
  return CLI::Validator(check, "");
}

constexpr int64_t any = std::numeric_limits<int64_t>::min();  // the library says what is wrong with it

void add_options(CLI::App& app, const Program& program, Flags& flags, std::optional<double>& lr,
                 std::string& precision, std::string& sampler) {
  const auto word = [&](const char* name, std::string& target, const Words& words, const char* help) {
    app.add_option(name, target, help)->type_name(CLI::detail::join(words, "|"))->check(one_of(words));
  };
  const auto number = [&](const char* name, auto& target, const std::string& help, auto least) {
    app.add_option(name, target, help)->type_name("N")->check(number_from(least));
  };
  const auto place = [&](const char* name, auto& target, const char* type, const char* help) {
    app.add_option(name, target, help)->type_name(type);
  };
  constexpr int64_t one = 1;
  word("--model", flags.model, program.models, "Network. Default: the first");
  word("--dataset", flags.dataset, program.datasets, "What it learns. Default: the first");
  place("--data", flags.data, "DIR", "Folder of the data. Default: where it was installed");
  word("--optimizer", flags.optimizer, {"sgd", "adamw"}, "Default: sgd, with momentum 0.9");
  const std::string sgd_lr = CLI::detail::to_string(program.sgd_lr);
  number("--lr", lr, "Learning rate. Default: " + sgd_lr + ", adamw 0.001", 0.0);
  app.add_flag("--scale_lr", flags.scale_lr, "Multiply it by the number of processes");
  word("--scheduler", flags.scheduler, {"none", "linear_warmup", "cosine", "step"},
       "Of the rate. Default: none");
  number("--batch_size", flags.batch_size, "Samples per process and batch. Default: 64", any);
  app.add_flag("--split_batches", flags.accelerator.sharing.split_batches,
               "They are those of all processes together");
  number("--epochs", flags.epochs, "Passes over the data. Default: 1, or as many as --max_batches takes",
         one);
  number("--max_batches", flags.max_batches, "Batches per process. Default: those of --epochs", one);
  number("--gradient_accumulation_steps", flags.accelerator.gradient_accumulation_steps,
         "Batches per update. Default: 1", any);
  number("--clip", flags.clip, "Largest norm of the gradients. Default: 0, any", 0.0);
  word("--mixed_precision", precision, {"no", "bf16", "fp16"}, "Of the forward pass. Default: no");
  number("--seed", flags.seed, "Of all random numbers. Default: 42", uint64_t{0});
  word("--sampler", sampler, {"seedable", "default"}, "Which random order. Default: seedable");
  place("--record", flags.accelerator.record, "FILE", "Write the run record");
  app.add_flag("--record_micro", flags.accelerator.record_micro, "With every loss of every process");
  place("--save_parameters", flags.save_parameters, "FILE", "Write the trained parameters, raw float32");
}

// `-` and `_` are alike in the names of flags.
Words with_underscores(int argc, char** argv) {
  Words words(argv + 1, argv + argc);
  for (std::string& word : words)
    if (word.rfind("--", 0) == 0)
      std::replace(word.begin() + 2, word.begin() + std::min(word.find('='), word.size()), '-', '_');
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  return words;
}

void refuse_unknown(const CLI::App& app) {
  for (const std::string& word : app.remaining()) {
    if (word.rfind('-', 0) != 0)
      throw UsageError("the word '" + word + "' belongs to no flag; --help lists what may be given");
    Words names;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    throw UsageError("there is no flag " + word + "; the nearest is " + nearest(word, names) +
                     ", --help lists all");
  }
}

std::optional<Flags> parse(int argc, char** argv, const Program& program) {
  Flags flags;
  flags.model = program.models.front();
  flags.dataset = program.datasets.front();
  std::optional<double> lr;
  std::string precision, sampler;
  CLI::App app(program.description, std::filesystem::path(argv[0]).filename());
  app.allow_extras();
  add_options(app, program, flags, lr, precision, sampler);
  try {
    app.parse(with_underscores(argc, argv));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ArgumentMismatch& error) {
    throw UsageError(std::string(error.what()) + "; --help shows what belongs behind it");
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  refuse_unknown(app);
  flags.lr = lr.value_or(flags.optimizer == "adamw" ? 1e-3 : program.sgd_lr);
  flags.accelerator.sharing.use_seedable_sampler = sampler != "default";
  if (!precision.empty()) flags.accelerator.mixed_precision = ivme::parse_precision(precision);
  return flags;
}

}  // namespace

int run(int argc, char** argv, const Program& program, void (*train)(const Flags&)) {
  try {
    if (const auto flags = parse(argc, argv, program)) train(*flags);
    return 0;
  } catch (const UsageError& error) {
    std::cerr << "error: " << error.what() << ".\n";
    return 2;
  } catch (const c10::Error& error) {
    std::cerr << "error: " << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
  }
  return 1;
}

}  // namespace examples
