#pragma once
#include <optional>
#include <string>
#include <vector>

namespace ivme::launch {

enum class Device { any, cpu, gpu, xla, tpu };

// What `ivme launch` was asked for. An empty optional means "not given": the program's own default stands.
struct LaunchOptions {
  std::vector<std::string> command;  // program and its arguments
  std::optional<int> num_processes;  // default 1; with Device::gpu the number of GPUs
  Device device = Device::any;
  std::optional<std::string>
      xla_platform;  // with Device::xla: cpu, tpu or cuda; default: PJRT_DEVICE, else the best
  std::optional<std::string> mixed_precision;  // no, bf16, fp16
  std::optional<int> gradient_accumulation_steps;
  std::optional<int> num_cpu_threads_per_process;  // default: OMP_NUM_THREADS, else cores / processes
  std::optional<int> main_process_port;            // default: a free one
  std::string log_dir;                             // empty: no log files
  bool tee = false;                                // show the other ranks' output too
};

// Starts the processes, passes their output on, and returns when all have ended and nothing of them is left
// running, grandchildren included. Returns the launcher's exit code: 0, the exit code of the rank that failed
// first (128 + signal if a signal ended it), or 128 + signal if this process was told to stop by SIGINT,
// SIGTERM, SIGHUP or SIGQUIT. The first failure ends the others within 2 s and is the last thing written to
// stderr.
//
// Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR (127.0.0.1), MASTER_PORT,
// OMP_NUM_THREADS and IVME_LAUNCHED=1, further variables for the options given; rank 0 also
// IVME_MASTER_LISTEN_FD, the number of an inherited socket that already listens on MASTER_PORT, and, when
// stderr is a terminal, IVME_TTY=1 and COLUMNS.
//
// While it runs, the calling thread blocks the signals named above and the process ignores SIGPIPE; both are
// put back. Throws UsageError for options that cannot be met (nothing was started then, or no rank came up),
// Error when the system refuses a process, a pipe or a log file.
int run(const LaunchOptions& options);

}  // namespace ivme::launch
