// SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104; computed by OpenSSL) for identity and
// authentication, and a fast 64-bit hash for checksums of activations (no security).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weft {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::span<const std::byte> data);
Sha256Digest HmacSha256(std::span<const std::byte> key, std::span<const std::byte> data);
// Compares in a time that does not depend on the contents.
bool DigestsEqual(const Sha256Digest& a, const Sha256Digest& b);
// Fills `out` from the kernel's random source.
void RandomBytes(std::span<std::byte> out);
std::string Hex(std::span<const uint8_t> bytes);

// 64-bit checksum (FNV-1a over 8-byte words, then over the remaining bytes). It depends on the
// order of the words.
uint64_t Checksum64(std::span<const std::byte> data, uint64_t seed = 0);

}  // namespace weft
