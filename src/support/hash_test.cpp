#include "support/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace ivme {
namespace {

std::string sha256(const std::string& text) {
  Sha256 hash;
  hash.add(text.data(), text.size());
  return hash.hex();
}

// FIPS 180-4 examples.
TEST(Sha256, gives_the_published_digests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, does_not_depend_on_how_the_bytes_are_cut_and_may_go_on_after_a_digest) {
  Sha256 hash;
  hash.add("a", 1);
  EXPECT_EQ(hash.hex(), sha256("a"));
  hash.add("", 0);
  hash.add("bc", 2);
  EXPECT_EQ(hash.hex(), sha256("abc"));
  EXPECT_EQ(hash.hex16(), "ba7816bf8f01cfea");
}

// Values of the Python package xxhash: xxh64(struct.pack("<q", i), seed=0).
TEST(IndexHash, is_xxh64_of_the_little_endian_index) {
  EXPECT_EQ(index_hash(0), 0x34c96acdcadb1bbbULL);
  EXPECT_EQ(index_hash(1), 0x9f29cb17a2a49995ULL);
  EXPECT_EQ(index_hash(2), 0xeac73e4044e82db0ULL);
  EXPECT_EQ(index_hash(59999), 0xa49265dd9aedfd2eULL);
  EXPECT_EQ(index_hash(std::int64_t{1} << 40), 0xa13ea4c7924fd453ULL);
  EXPECT_EQ(index_hash(-1), 0x85d136adb773c6c9ULL);
}

TEST(Hex16, keeps_leading_zeros) {
  EXPECT_EQ(hex16(0), "0000000000000000");
  EXPECT_EQ(hex16(0x0123456789abcdefULL), "0123456789abcdef");
  EXPECT_EQ(hex16(~0ULL), "ffffffffffffffff");
}

}  // namespace
}  // namespace ivme
