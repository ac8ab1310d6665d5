// Pseudo-random numbers that are equal on every machine: a 64-bit mixer, and permutations of 0 to n
// - 1 that need no table. Not cryptographic.
#pragma once

#include <cstdint>

namespace weft::train {

// SplitMix64's finisher (Steele, Lea, Flood 2014, with Stafford's constants): a bijection in which
// each bit of the argument changes half of the result's bits.
constexpr uint64_t Mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

// Maps the upper 53 bits to [0, 1).
constexpr double UnitOf(uint64_t bits) {
    return static_cast<double>(bits >> 11) * 0x1p-53;
}

// A seeded permutation of 0 to n - 1: a six-round Feistel network over the smallest even number of
// bits that holds n, applied again until the value is below n (on average at most four times).
class Permutation {
  public:
    Permutation(uint64_t n, uint64_t seed) : n_(n), seed_(seed) {
        while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
    }
    // The element at place `at`. Precondition: at < n <= 2^62.
    uint64_t operator()(uint64_t at) const {
        do {
            at = Step(at);
        } while (at >= n_);
        return at;
    }

  private:
    uint64_t Step(uint64_t value) const {
        const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
        uint64_t left = value >> half_bits_, right = value & mask;
        for (uint64_t round = 0; round < 6; ++round) {
            const uint64_t mixed = left ^ (Mix(right ^ Mix(seed_ + round)) & mask);
            left = right;
            right = mixed;
        }
        return left << half_bits_ | right;
    }

    uint64_t n_, seed_;
    int half_bits_ = 1;
};

}  // namespace weft::train
