// SHA-256 and HMAC against the published vectors (FIPS 180-4 examples, RFC 4231); the guarantees of
// the checksum.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
}

TEST(Sha256, GivesThePublishedDigests) {
    const auto digest = [](const std::string& text) { return Hex(Sha256(Bytes(text))); };
    EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(digest(std::string(1'000'000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HmacSha256, GivesThePublishedDigests) {
    const auto digest = [](const std::string& key, const std::string& text) {
        return Hex(HmacSha256(Bytes(key), Bytes(text)));
    };
    EXPECT_EQ(digest(std::string(20, '\x0b'), "Hi There"),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(digest("Jefe", "what do ya want for nothing?"),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(digest(std::string(20, '\xaa'), std::string(50, '\xdd')),
              "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    EXPECT_EQ(
        digest(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Digests, AreEqualOnlyWhenEveryByteIs) {
    const Sha256Digest digest = Sha256(Bytes("x"));
    EXPECT_TRUE(DigestsEqual(digest, digest));
    for (size_t i = 0; i < digest.size(); ++i) {
        Sha256Digest other = digest;
        other[i] ^= 1;
        EXPECT_FALSE(DigestsEqual(digest, other)) << i;
    }
}

TEST(RandomBytes, FillsAllAndNeverRepeats) {
    std::set<std::string> seen;
    for (int i = 0; i < 100; ++i) {
        std::vector<uint8_t> key(32, 0);
        RandomBytes(std::as_writable_bytes(std::span(key)));
        EXPECT_TRUE(seen.insert(Hex(key)).second);
    }
    std::vector<std::byte> many(1 << 20, std::byte{0});
    RandomBytes(many);
    EXPECT_FALSE(std::equal(many.end() - 64, many.end(), std::vector<std::byte>(64).begin()));
    RandomBytes({});
}

TEST(Checksum64, SeesEveryBitEveryOrderAndTheLength) {
    std::string text(29, 'x');
    const uint64_t base = Checksum64(Bytes(text));
    EXPECT_EQ(base, Checksum64(Bytes(std::string(29, 'x'))));
    std::set<uint64_t> seen{base};
    for (size_t bit = 0; bit < text.size() * 8; ++bit) {
        text[bit / 8] ^= static_cast<char>(1 << bit % 8);
        EXPECT_TRUE(seen.insert(Checksum64(Bytes(text))).second) << bit;
        text[bit / 8] ^= static_cast<char>(1 << bit % 8);
    }
    for (size_t length = 0; length < 29; ++length) {
        EXPECT_TRUE(seen.insert(Checksum64(Bytes(std::string(length, 'x')))).second) << length;
    }
    EXPECT_NE(Checksum64(Bytes("12345678abcdefgh")), Checksum64(Bytes("abcdefgh12345678")));
    EXPECT_NE(Checksum64(Bytes(text), 1), Checksum64(Bytes(text), 2));
}

}  // namespace
}  // namespace weft
