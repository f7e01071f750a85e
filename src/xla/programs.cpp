#include "xla/programs.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "ivme/error.h"
#include "process/environment.h"
#include "xla/compile/notice.h"
#include "xla/lower/program.h"

namespace ivme::xla {
namespace {

constexpr int most_explanations = 8;
constexpr int most_steps_to_learn = 64;  // taking lines costs more than recording

struct All {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<Executable>> by_key;
};
All& all() {
  static auto* one = new All;  // tensors may outlive static objects
  return *one;
}

std::vector<const ProgramSummary*> pointers(const std::vector<ProgramSummary>& programs) {
  std::vector<const ProgramSummary*> all_of_them;
  for (const ProgramSummary& one : programs) all_of_them.push_back(&one);
  return all_of_them;
}

std::string name_of_input(const Node& leaf) { return leaf.name ? *leaf.name : ""; }

// IVME_XLA_DUMP=FOLDER: each program's text, numbered in the order of their first runs.
void dump(const std::string& text, size_t number) {
  auto folder = read_environment("IVME_XLA_DUMP");
  if (!folder || folder->empty()) return;
  std::error_code error;
  std::filesystem::create_directories(*folder, error);
  auto path = std::filesystem::path(*folder) / ("program_" + std::to_string(number) + ".mlir");
  if (!(std::ofstream(path) << text).flush())
    throw Error("IVME_XLA_DUMP asks for " + path.string() +
                ", which cannot be written. Name a folder that can.");
}

}  // namespace

WantOfLines::WantOfLines(WantOfLines&& other) noexcept : wanted_(std::exchange(other.wanted_, false)) {}

WantOfLines& WantOfLines::operator=(WantOfLines&& other) noexcept {
  set(false);
  wanted_ = std::exchange(other.wanted_, false);
  return *this;
}

void WantOfLines::set(bool wanted) {
  count_ += static_cast<int>(wanted) - static_cast<int>(wanted_);
  wanted_ = wanted;
}

void ProgramsOfLoop::always_want_lines(bool always) {
  always_ = always;
  if (always) want_.set(true);
}

// A program that came when no lines were taken gets them when it runs again.
void ProgramsOfLoop::learn_lines(const Graph& graph, const Known& known) {
  if (!want_.wanted()) return;
  add_lines(graph, (known.trains ? training_ : evaluation_)[known.index]);
  const auto complete = [](const ProgramSummary& program) { return program.has_lines; };
  const bool done = std::ranges::all_of(training_, complete) && std::ranges::all_of(evaluation_, complete);
  if (!always_ && (done || --steps_to_learn_ <= 0)) want_.set(false);
}

void ProgramsOfLoop::note(const Graph& graph) {
  unexplained_ = nullptr;
  if (const auto known = keys_.find(graph.key); known != keys_.end())
    return learn_lines(graph, known->second);
  const bool trains = std::ranges::any_of(graph.aliases, [](int leaf) { return leaf >= 0; });
  auto& alike = trains ? training_ : evaluation_;
  ProgramSummary summary = summarize(graph, name_of_input);
  if (most_ > 0 && static_cast<int64_t>(keys_.size()) >= most_)
    throw Error("The step would be program " + std::to_string(keys_.size() + 1) + ", and max_programs is " +
                std::to_string(most_) + ": " +
                (!alike.empty() ? difference_from(pointers(alike), summary)
                 : trains
                     ? "it is the first that updates state. Allow one program for each kind of step."
                     : "it is the first that updates no state, an evaluation say. Allow one program for each "
                       "kind of step."));
  keys_.emplace(graph.key, Known{trains, alike.size()});
  steps_to_learn_ = most_steps_to_learn;
  want_.set(true);
  if (alike.size() >= static_cast<size_t>(trains ? expected_ : 1)) unexplained_ = &alike;
  alike.push_back(std::move(summary));
}

void ProgramsOfLoop::explain_new(const Cost& cost) {
  if (!unexplained_ || told_ > most_explanations) return;
  if (told_++ == most_explanations) {
    std::fputs("ivme: further programs are not explained.\n", stderr);
    return;
  }
  auto known = pointers(*unexplained_);
  const ProgramSummary& now = *known.back();
  known.pop_back();
  std::fprintf(stderr, "ivme: %s\n", explain(known, now, cost).c_str());
}

std::string ProgramsOfLoop::difference(uint64_t from, uint64_t to) const {
  const ProgramSummary *before = nullptr, *now = nullptr;
  for (const auto* programs : {&training_, &evaluation_})
    for (const ProgramSummary& program : *programs) {
      if (program.key == from) before = &program;
      if (program.key == to) now = &program;
    }
  return before && now ? difference_from({before}, *now) : "other operations are recorded";
}

Compiled compiled(const Graph& graph, Client& client) {
  std::lock_guard lock(all().mutex);
  auto& by_key = all().by_key;
  if (auto known = by_key.find(graph.key); known != by_key.end())
    return {known->second, {Cost::Way::known, 0}};
  std::string text = lower(graph);
  dump(text, by_key.size());
  std::shared_ptr<Executable> executable;
  with_notice(graph.order.size(), [&] {
    executable = client.compile(text);
    return !executable->from_cache();
  });
  by_key.emplace(graph.key, executable);
  const auto way = executable->from_cache() ? Cost::Way::loaded : Cost::Way::compiled;
  return {executable, {way, executable->seconds()}};
}

int64_t count_programs() {
  std::lock_guard lock(all().mutex);
  return static_cast<int64_t>(all().by_key.size());
}

}  // namespace ivme::xla
