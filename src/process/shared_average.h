#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace ivme {

// A rank ended or did not come. Group::run turns it into a sentence that names the rank.
class RankLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Averages arrays over the processes of one host through memory that they all map: no copies through sockets,
// which cost Gloo on loopback more time than the sum. Anonymous memory: nothing is left behind however the
// processes end.
//
// The result has the bits of what PyTorch's DistributedDataParallel computes with Gloo: each value is
// multiplied by 1 / size, then summed in the order of Gloo's ring. Chunk c of the array (one per rank) is
// summed from rank c-1 downwards, ending at rank c. All ranks must make the same calls in the same order;
// each from one thread at a time.
class SharedAverage {
 public:
  // Rank 0: makes the memory. `address()` tells the others where it is.
  static std::unique_ptr<SharedAverage> create(int size, std::chrono::milliseconds timeout);
  // Other ranks: maps it; null when that cannot be done (other host, other user, other container).
  static std::unique_ptr<SharedAverage> attach(const std::string& address, int rank, int size,
                                               std::chrono::milliseconds timeout);
  ~SharedAverage();
  SharedAverage(const SharedAverage&) = delete;
  SharedAverage& operator=(const SharedAverage&) = delete;

  std::string address() const;

  // In place. Throws RankLost when another rank has ended or does not come within the timeout.
  void average(float* values, int64_t count) { average_all(values, count); }
  void average(double* values, int64_t count) { average_all(values, count); }

 private:
  struct Header;
  SharedAverage(int descriptor, int rank, int size, std::chrono::milliseconds timeout);
  template <class T>
  void average_all(T* values, int64_t count);
  void barrier();
  void wait_for_generation_after(uint32_t generation);
  char* block(int index) const;  // 0 .. size-1: what the ranks bring; size: the result

  int descriptor_;  // rank 0's, until it ends; -1 on the others
  int rank_, size_;
  std::chrono::milliseconds timeout_;
  Header* header_;
  size_t bytes_;
};

}  // namespace ivme
