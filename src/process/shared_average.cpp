#include "process/shared_average.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <fstream>

namespace ivme {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr uint64_t mark = 0x69766d652d617667;  // tells our memory from another
constexpr int max_ranks = 256;
constexpr int64_t block_bytes = 256 << 10;  // small enough to stay in a core's cache

void sleep_while(std::atomic<uint32_t>& word, uint32_t value, std::chrono::milliseconds longest) {
  timespec time{longest.count() / 1000, longest.count() % 1000 * 1000000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool has_ended(pid_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  size_t name_end = line.rfind(')');  // then the state; Z: dead, but not yet waited for
  return name_end != std::string::npos && name_end + 2 < line.size() && line[name_end + 2] == 'Z';
}

// Gloo's ring: at least two segments per rank, none above 1 MiB; a rank's chunk is its segments together.
int64_t chunk_length(int64_t count, int64_t element, int size) {
  constexpr int64_t most = 1 << 20;
  int64_t bytes = count * element;
  int64_t per_rank = std::max<int64_t>((bytes + most * size - 1) / (most * size), 2);
  int64_t segments = per_rank * size;
  int64_t segment = ((bytes + segments - 1) / segments + element - 1) / element;
  return std::max<int64_t>(per_rank * segment, 1);
}

}  // namespace

struct SharedAverage::Header {
  uint64_t mark;
  std::atomic<uint32_t> arrived, generation, lost;
  std::atomic<pid_t> pids[max_ranks];
};

std::unique_ptr<SharedAverage> SharedAverage::create(int size, std::chrono::milliseconds timeout) {
  if (size > max_ranks) return nullptr;
  int descriptor = memfd_create("ivme-average", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  if (ftruncate(descriptor, static_cast<off_t>(sizeof(Header)) + (size + 1) * block_bytes) != 0) {
    close(descriptor);
    return nullptr;
  }
  std::unique_ptr<SharedAverage> shared(new SharedAverage(descriptor, 0, size, timeout));
  if (!shared->header_) return nullptr;
  shared->header_->mark = mark;
  return shared;
}

std::unique_ptr<SharedAverage> SharedAverage::attach(const std::string& address, int rank, int size,
                                                     std::chrono::milliseconds timeout) {
  int descriptor = open(address.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  struct stat facts;
  bool fits = fstat(descriptor, &facts) == 0 &&
              facts.st_size == static_cast<off_t>(sizeof(Header)) + (size + 1) * block_bytes;
  std::unique_ptr<SharedAverage> shared;
  if (fits) shared.reset(new SharedAverage(descriptor, rank, size, timeout));
  close(descriptor);
  if (!shared || !shared->header_ || shared->header_->mark != mark) return nullptr;
  shared->descriptor_ = -1;
  return shared;
}

SharedAverage::SharedAverage(int descriptor, int rank, int size, std::chrono::milliseconds timeout)
    : descriptor_(descriptor),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      header_(nullptr),
      bytes_(sizeof(Header) + (size + 1) * block_bytes) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return;
  header_ = static_cast<Header*>(memory);
  header_->pids[rank].store(getpid());
}

SharedAverage::~SharedAverage() {
  if (header_) munmap(header_, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

std::string SharedAverage::address() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor_);
}

char* SharedAverage::block(int index) const {
  return reinterpret_cast<char*>(header_) + sizeof(Header) + index * block_bytes;
}

void SharedAverage::barrier() {
  uint32_t generation = header_->generation.load();
  if (header_->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(size_)) {
    header_->arrived.store(0);
    header_->generation.store(generation + 1);
    wake_all(header_->generation);
  } else {
    wait_for_generation_after(generation);
  }
}

void SharedAverage::wait_for_generation_after(uint32_t generation) {
  for (int spin = 0; spin < 200; ++spin)
    if (header_->generation.load() != generation) return;
  auto deadline = Clock::now() + timeout_;
  while (header_->generation.load() == generation) {
    sleep_while(header_->generation, generation, 50ms);
    if (header_->generation.load() != generation) return;
    std::string reason;
    if (header_->lost.load()) reason = "another rank gave up";
    for (int rank = 0; rank < size_; ++rank)
      if (has_ended(header_->pids[rank].load())) reason = "rank " + std::to_string(rank) + " has ended";
    if (reason.empty() && Clock::now() >= deadline) reason = "timed out";
    if (reason.empty()) continue;
    header_->lost.store(1);
    throw RankLost(reason);
  }
}

template <class T>
void SharedAverage::average_all(T* values, int64_t count) {
  constexpr int64_t in_block = block_bytes / static_cast<int64_t>(sizeof(T));
  const T share = static_cast<T>(1.0 / size_);
  const int64_t chunk = chunk_length(count, sizeof(T), size_);
  T* mine = reinterpret_cast<T*>(block(rank_));
  T* result = reinterpret_cast<T*>(block(size_));
  for (int64_t start = 0; start < count; start += in_block) {
    const int64_t length = std::min(in_block, count - start);
    for (int64_t i = 0; i < length; ++i) mine[i] = values[start + i] * share;
    barrier();  // all ranks have brought this block, and have taken the last one's result
    int64_t at = length * rank_ / size_;
    const int64_t end = length * (rank_ + 1) / size_;
    while (at < end) {
      const auto c = static_cast<int>((start + at) / chunk);
      const int64_t stop = std::min(end, (c + 1) * chunk - start);
      auto from = [&](int distance) {
        return reinterpret_cast<const T*>(block(((c - distance) % size_ + size_) % size_));
      };
      const T *first = from(1), *second = from(2);
      for (int64_t i = at; i < stop; ++i) result[i] = second[i] + first[i];
      for (int distance = 3; distance <= size_; ++distance) {
        const T* next = from(distance);
        for (int64_t i = at; i < stop; ++i) result[i] = next[i] + result[i];
      }
      at = stop;
    }
    barrier();  // the result is whole
    std::memcpy(values + start, result, length * sizeof(T));
  }
}

template void SharedAverage::average_all(float*, int64_t);
template void SharedAverage::average_all(double*, int64_t);

}  // namespace ivme
