#include "support/hash.h"

#include <sha2.h>
#include <xxhash.h>

namespace ivme {

struct Sha256::State {
  SHA2_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { SHA256Init(&state_->context); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(const void* bytes, std::size_t count) {
  SHA256Update(&state_->context, static_cast<const std::uint8_t*>(bytes), count);
}

std::string Sha256::hex() const {
  SHA2_CTX context = state_->context;
  std::uint8_t digest[SHA256_DIGEST_LENGTH];
  SHA256Final(digest, &context);
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::uint8_t byte : digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string Sha256::hex16() const { return hex().substr(0, 16); }

std::uint64_t index_hash(std::int64_t sample_index) {
  const auto value = static_cast<std::uint64_t>(sample_index);
  unsigned char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
  return XXH64(bytes, sizeof bytes, 0);
}

std::uint64_t content_hash(const void* bytes, std::size_t count) { return XXH64(bytes, count, 0); }

std::string hex16(std::uint64_t value) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4)
    text[static_cast<std::size_t>(i)] = "0123456789abcdef"[value & 15];
  return text;
}

}  // namespace ivme
