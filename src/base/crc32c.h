// CRC-32C (Castagnoli, as in iSCSI, RFC 3720 appendix B.4): finds every error of a few bits, and
// all but one in 2^32 of any other. No security. By the CPU's own instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

// crc: of what came before, so that a message may be given in pieces.
uint32_t Crc32c(std::span<const std::byte> data, uint32_t crc = 0);
// The same without the instruction.
uint32_t Crc32cPortable(std::span<const std::byte> data, uint32_t crc = 0);

}  // namespace weft
