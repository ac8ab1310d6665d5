// CRC-32C (Castagnoli polynomial, as in iSCSI, RFC 3720 appendix B.4): detects every error of a few
// bits, and other errors with a probability of 1 - 2^-32. It does not protect against deliberate
// changes. Uses the CPU's CRC instruction if there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

// crc: the result for the bytes before `data`, so that a message can be passed in pieces.
uint32_t Crc32c(std::span<const std::byte> data, uint32_t crc = 0);
// Returns the same value as Crc32c, computed without the CPU's instruction.
uint32_t Crc32cPortable(std::span<const std::byte> data, uint32_t crc = 0);

}  // namespace weft
