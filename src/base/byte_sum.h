// A fast 128-bit hash of the parts of a file, in any order: finds accidents and updates, and is no
// protection against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

// The sum of key(i) * word(i) modulo 2^128 over
// the file's little-endian words of 8 bytes, where key(i) depends on the word's place only. The sum
// over a file is the sum over its parts, in any order and cut at any byte. Other bytes give another
// sum but for a chance of about 2^-64; zeros add nothing, so the length is to be compared, too.
struct ByteSum {
    uint64_t low = 0, high = 0;
    // place: of the first byte, from the start of the file.
    void Add(uint64_t place, std::span<const std::byte> data);
    void Add(const ByteSum& other);
    bool operator==(const ByteSum&) const = default;
};

}  // namespace weft
