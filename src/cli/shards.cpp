#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli/commands.h"
#include "cli/flags.h"
#include "data/batch_shard.h"
#include "launch/usage_error.h"

namespace ivme::cli {
namespace {

const Help help = {
    "ivme shards --length N --batch_size B --num_processes P [options]",
    "Shows which positions of an epoch's order each process sees, batch by batch, as the library deals them.",
    "ivme shards --length 10 --batch_size 4 --num_processes 2"};

const std::vector<Flag> flags = {
    {"Common", "length", 0, "N", "Samples in the epoch.", "none: must be given", nullptr},
    {"Common", "batch_size", 0, "B", "Batch size as given to the loader.", "1", nullptr},
    {"Common", "num_processes", 'n', "P", "Number of processes.", "1", nullptr},
    {"Common", "json", 0, nullptr, "Print JSON, whole.", "a table", nullptr},
    {"Rules", "split_batches", 0, nullptr, "B is the batch of all processes together.", "B is that of each",
     nullptr},
    {"Rules", "no_even_batches", 0, nullptr, "Do not complete the end with samples from the start.",
     "it is completed", nullptr},
    {"Rules", "drop_last", 0, nullptr, "Leave out the samples that do not fill a batch on every process.",
     "they are kept", nullptr},
};

ShardOptions parse(const Arguments& arguments) {
  if (!arguments.rest().empty()) {
    throw launch::UsageError("unexpected word '" + arguments.rest()[0] + "'", "ivme shards --help");
  }
  const auto length = arguments.number("length");
  if (!length) throw launch::UsageError("--length is missing", help.example);
  const int64_t processes = arguments.number("num_processes").value_or(1);
  if (processes < 1 || !std::in_range<int>(processes)) {
    throw launch::UsageError(
        "--num_processes " + std::to_string(processes) + " was asked, and it must be at least 1",
        "--num_processes 2");
  }
  return {.length = *length,
          .batch_size = arguments.number("batch_size").value_or(1),
          .num_processes = static_cast<int>(processes),
          .split_batches = arguments.has("split_batches"),
          .even_batches = !arguments.has("no_even_batches"),
          .drop_last = arguments.has("drop_last"),
          .complete_on_one_process = true};
}

void print_json(const std::vector<BatchShard>& ranks, const ShardOptions& options) {
  std::printf("{\"ranks\":[");
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::printf(rank == 0 ? "[" : ",[");
    for (int64_t k = 0; k < ranks[rank].size(); ++k) {
      const char* separator = k == 0 ? "[" : ",[";
      for (const int64_t position : ranks[rank].positions(k)) {
        std::printf("%s%lld", std::exchange(separator, ","), static_cast<long long>(position));
      }
      std::printf("]");
    }
    std::printf("]");
  }
  std::printf("],\"remainder\":%lld,\"global_batch_size\":%lld}\n",
              static_cast<long long>(remainder(options)), static_cast<long long>(global_batch_size(options)));
}

// "8-9 0-1": runs of consecutive positions.
std::string runs(const std::vector<int64_t>& positions) {
  std::string text;
  for (size_t i = 0, end = 0; i < positions.size(); i = end) {
    end = i + 1;
    while (end < positions.size() && positions[end] == positions[end - 1] + 1) ++end;
    if (!text.empty()) text += ' ';
    text += std::to_string(positions[i]);
    if (end - i > 1) text += '-' + std::to_string(positions[end - 1]);
  }
  return text;
}

size_t terminal_width() {
  winsize size{};
  return ::ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// The step and rank 0 in any case, and as many ranks more as the screen is wide.
size_t columns_that_fit(const std::vector<size_t>& widths) {
  const size_t width = terminal_width();
  size_t columns = 0, used = 0;
  while (columns < widths.size() && (columns < 2 || used + widths[columns] <= width)) {
    used += widths[columns++] + 2;
  }
  return columns;
}

// A row per step, a column per rank. On a terminal the middle of many steps and the ranks that do not fit are
// left out, and this is said.
void print_table(const std::vector<BatchShard>& ranks, const ShardOptions& options) {
  const bool terminal = ::isatty(1);
  const int64_t steps = ranks[0].size();
  const int64_t head = terminal && steps > 20 ? 10 : steps;
  const int64_t tail = steps - (head < steps ? 5 : 0);
  std::vector<std::vector<std::string>> rows = {{"step"}};
  for (size_t rank = 0; rank < ranks.size(); ++rank) rows[0].push_back("rank " + std::to_string(rank));
  for (int64_t k = 0; k < steps; k = k + 1 == head ? std::max(tail, head) : k + 1) {
    rows.push_back({std::to_string(k)});
    for (const auto& rank : ranks) rows.back().push_back(k < rank.size() ? runs(rank.positions(k)) : "-");
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  const size_t columns = terminal ? columns_that_fit(widths) : widths.size();
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r > 0 && head < steps && r == static_cast<size_t>(head) + 1) {
      std::printf(" ...  %lld steps left out; --json prints all\n", static_cast<long long>(tail - head));
    }
    for (size_t c = 0; c < columns; ++c) {
      const bool last = c + 1 == columns;
      std::printf("%-*s%s", last ? 0 : static_cast<int>(widths[c]), rows[r][c].c_str(), last ? "\n" : "  ");
    }
  }
  if (columns < widths.size()) {
    std::printf("%zu ranks do not fit on the screen; --json prints all\n", widths.size() - columns);
  }
  const int64_t kept = remainder(options);
  std::printf("%lld samples a step", static_cast<long long>(global_batch_size(options)));
  if (kept > 0) std::printf("; the last step has %lld of its own", static_cast<long long>(kept));
  std::printf(".\n");
  if (options.num_processes == 1 && options.even_batches && kept > 0) {
    std::printf(
        "A loader prepared for one process is not sharded: its last batch stays short, or is padded on "
        "xla.\n");
  }
}

}  // namespace

int shards(int argc, char** argv) {
  const Arguments arguments("shards", flags, argc, argv);
  if (arguments.wants_help()) {
    print_help(help, flags);
    return 0;
  }
  const ShardOptions options = parse(arguments);
  std::vector<BatchShard> ranks;
  try {
    for (int rank = 0; rank < options.num_processes; ++rank) ranks.emplace_back(options, rank);
  } catch (const Error& error) {
    throw launch::UsageError(error.what(), "ivme shards --help");
  }
  arguments.has("json") ? print_json(ranks, options) : print_table(ranks, options);
  return 0;
}

}  // namespace ivme::cli
