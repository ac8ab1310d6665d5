#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed

// The remainder after one more zero byte, for each low byte.
constexpr std::array<uint32_t, 256> MakeByteTable() {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
        table[i] = crc;
    }
    return table;
}
constexpr std::array<uint32_t, 256> kByteTable = MakeByteTable();

uint32_t Bytewise(const std::byte* data, size_t count, uint32_t crc) {
    for (size_t i = 0; i < count; i++) {
        crc = kByteTable[(crc ^ static_cast<uint8_t>(data[i])) & 0xff] ^ crc >> 8;
    }
    return crc;
}

#if defined(__x86_64__) || defined(__aarch64__)

// The instruction has a latency of three cycles but starts every cycle, so three parts of the data
// are processed side by side and joined by advancing a remainder past a part of zeros.
constexpr size_t kPartBytes = 1024;
using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

constexpr ShiftTable MakeShiftTable() {
    std::array<uint32_t, 32> of_bit{};
    for (uint32_t bit = 0; bit < 32; bit++) {
        uint32_t crc = uint32_t{1} << bit;
        for (size_t i = 0; i < kPartBytes; i++) crc = kByteTable[crc & 0xff] ^ crc >> 8;
        of_bit[bit] = crc;
    }
    ShiftTable table{};
    for (uint32_t place = 0; place < 4; place++) {
        for (uint32_t value = 0; value < 256; value++) {
            for (uint32_t bit = 0; bit < 8; bit++) {
                if ((value >> bit & 1) != 0) table[place][value] ^= of_bit[8 * place + bit];
            }
        }
    }
    return table;
}
constexpr ShiftTable kShift = MakeShiftTable();

uint32_t PastAPart(uint32_t crc) {
    return kShift[0][crc & 0xff] ^ kShift[1][crc >> 8 & 0xff] ^ kShift[2][crc >> 16 & 0xff] ^
           kShift[3][crc >> 24];
}

#if defined(__x86_64__)
#define WEFT_CRC_TARGET __attribute__((target("sse4.2")))
#define WEFT_CRC_WORD(crc, word) __builtin_ia32_crc32di(crc, word)
bool HasInstruction() {
    return __builtin_cpu_supports("sse4.2");
}
#else
#define WEFT_CRC_TARGET __attribute__((target("+crc")))
#define WEFT_CRC_WORD(crc, word) __crc32cd(static_cast<uint32_t>(crc), word)
bool HasInstruction() {
    static const bool has = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
    return has;
}
#endif

uint64_t WordAt(const std::byte* at) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    return word;
}

WEFT_CRC_TARGET uint32_t ByInstruction(const std::byte* data, size_t count, uint32_t crc) {
    while (count >= 3 * kPartBytes) {
        uint64_t a = crc;
        uint64_t b = 0;
        uint64_t c = 0;
        for (size_t i = 0; i < kPartBytes; i += 8) {
            a = WEFT_CRC_WORD(a, WordAt(data + i));
            b = WEFT_CRC_WORD(b, WordAt(data + kPartBytes + i));
            c = WEFT_CRC_WORD(c, WordAt(data + 2 * kPartBytes + i));
        }
        crc = PastAPart(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
        crc = PastAPart(crc) ^ static_cast<uint32_t>(c);
        data += 3 * kPartBytes;
        count -= 3 * kPartBytes;
    }
    uint64_t rest = crc;
    for (; count >= 8; data += 8, count -= 8) rest = WEFT_CRC_WORD(rest, WordAt(data));
    return Bytewise(data, count, static_cast<uint32_t>(rest));
}

#endif

}  // namespace

uint32_t Crc32cPortable(std::span<const std::byte> data, uint32_t crc) {
    return ~Bytewise(data.data(), data.size(), ~crc);
}

uint32_t Crc32c(std::span<const std::byte> data, uint32_t crc) {
#if defined(__x86_64__) || defined(__aarch64__)
    if (HasInstruction()) return ~ByInstruction(data.data(), data.size(), ~crc);
#endif
    return Crc32cPortable(data, crc);
}

}  // namespace weft
