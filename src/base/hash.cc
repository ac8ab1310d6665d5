#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cstring>

#include "base/check.h"

namespace weft {

Sha256Digest Sha256(std::span<const std::byte> data) {
    Sha256Digest digest;
    unsigned size = 0;
    WEFT_CHECK(EVP_Digest(data.data(), data.size(), digest.data(), &size, EVP_sha256(), nullptr));
    WEFT_CHECK(size == digest.size());
    return digest;
}

Sha256Digest HmacSha256(std::span<const std::byte> key, std::span<const std::byte> data) {
    Sha256Digest digest;
    unsigned size = 0;
    WEFT_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                    reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest.data(),
                    &size) != nullptr);
    WEFT_CHECK(size == digest.size());
    return digest;
}

bool DigestsEqual(const Sha256Digest& a, const Sha256Digest& b) {
    return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void RandomBytes(std::span<std::byte> out) {
    while (!out.empty()) {
        const ssize_t got = getrandom(out.data(), out.size(), 0);
        WEFT_CHECK(got > 0);
        out = out.subspan(static_cast<size_t>(got));
    }
}

std::string Hex(std::span<const uint8_t> bytes) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (uint8_t byte : bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

uint64_t Checksum64(std::span<const std::byte> data, uint64_t seed) {
    constexpr uint64_t kPrime = 0x100000001b3ull;
    uint64_t hash = 0xcbf29ce484222325ull ^ seed;
    while (data.size() >= 8) {
        uint64_t word;
        std::memcpy(&word, data.data(), 8);
        hash = (hash ^ word) * kPrime;
        hash ^= hash >> 29;
        data = data.subspan(8);
    }
    for (std::byte byte : data) hash = (hash ^ static_cast<uint64_t>(byte)) * kPrime;
    return hash;
}

}  // namespace weft
