#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ivme {

// SHA-256 over bytes that arrive in pieces. Not for several threads at once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void add(const void* bytes, std::size_t count);

  // The digest of all that was added so far, in lower-case hex: 64 digits, or the first 16 of them.
  // More may be added afterwards.
  std::string hex() const;
  std::string hex16() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// XXH64 with seed 0 of the index as 8 bytes, little-endian. The order of a step's samples is recorded as the
// sum of these modulo 2^64, which does not depend on how the samples are split over the workers.
std::uint64_t index_hash(std::int64_t sample_index);

// XXH64 with seed 0.
std::uint64_t content_hash(const void* bytes, std::size_t count);

// 16 lower-case hex digits.
std::string hex16(std::uint64_t value);

}  // namespace ivme
