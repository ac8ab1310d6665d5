// The stand-in for vpdpbusd (support/vnni_stand_in.h) gives the instruction's results, for the
// encodings that the assembler emits. On a CPU with AVX-VNNI, the test checks the CPU.
#include "support/vnni_stand_in.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#if defined(__x86_64__)

namespace weft::test {
namespace {

using Vector = std::array<uint8_t, 32>;
using Vectors = std::array<Vector, 16>;

// Bytes of any value, with many of the extremes.
Vectors RandomVectors(uint32_t seed) {
    constexpr uint8_t kExtremes[] = {0, 1, 127, 128, 129, 255};
    std::mt19937 random(seed);
    Vectors all;
    for (Vector& vector : all) {
        for (uint8_t& byte : vector) {
            const uint32_t number = random();
            byte = number % 2 == 0 ? kExtremes[number / 2 % 6] : static_cast<uint8_t>(number >> 8);
        }
    }
    return all;
}

constexpr Vector kConstant = {255, 128, 127, 1, 0, 2, 3, 200, 9};

// `after` is `before`, except for register `sum`.
void Expect(const Vectors& before, const Vectors& after, int sum, int weights, const Vector& factor,
            size_t bytes) {
    Vectors expected = before;
    Vector& sums = expected[static_cast<size_t>(sum)];
    sums.fill(0);
    for (size_t lane = 0; lane < bytes; lane += 4) {
        int64_t total = 0;
        for (size_t i = 0; i < 4; ++i) {
            const auto place = lane + i;
            total += int64_t{before[static_cast<size_t>(sum)][place]} << (8 * i);
            total += int64_t{before[static_cast<size_t>(weights)][place]} *
                     static_cast<int8_t>(factor[place]);
        }
        for (size_t i = 0; i < 4; ++i) sums[lane + i] = static_cast<uint8_t>(total >> (8 * i));
    }
    for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i], expected[i]) << "register " << i;
}

#define VNNI_EACH_REGISTER ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
#define VNNI_REGISTERS                                                                       \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
// Loads all registers from `all`, executes the text, and stores them. The text may use %rsi (the
// address of `memory`), %rcx (`index`), %r9, %r12, %r13 and %[constant].
#define VNNI_RUN(text, all, memory, index)                                                         \
    do {                                                                                           \
        const void* rsi = memory;                                                                  \
        int64_t rcx = index;                                                                       \
        __asm__ volatile(VNNI_EACH_REGISTER "vmovdqu \\i * 32(%%rdi), %%ymm\\i\n.endr\n" text      \
                                            "\n" VNNI_EACH_REGISTER                                \
                                            "vmovdqu %%ymm\\i, \\i * 32(%%rdi)\n.endr\nvzeroupper" \
                         : "+c"(rcx), "+S"(rsi)                                                    \
                         : "D"(&(all)), [constant] "m"(kConstant)                                  \
                         : "memory", "cc", "r9", "r12", "r13", VNNI_REGISTERS);                    \
    } while (false)

// Registers as numbers, AT&T order: factor, weights, sum.
#define VNNI_EXPECT_REGISTERS(kind, factor, weights, sum)                                     \
    do {                                                                                      \
        SCOPED_TRACE(#kind #factor ", " #weights ", " #sum);                                  \
        const Vectors before = RandomVectors(100 * (factor) + 10 * (weights) + (sum));        \
        Vectors after = before;                                                               \
        VNNI_RUN("%{vex%} vpdpbusd %%" #kind #factor ", %%" #kind #weights ", %%" #kind #sum, \
                 after, nullptr, 0);                                                          \
        Expect(before, after, sum, weights, before[factor], #kind[0] == 'y' ? 32 : 16);       \
    } while (false)

class VnniStandIn : public testing::Test {
  protected:
    void SetUp() override {
        if (!InstallVnniStandIn()) GTEST_SKIP() << "this CPU has no AVX2";
    }
};

TEST_F(VnniStandIn, MultipliesEveryRegister) {
    VNNI_EXPECT_REGISTERS(ymm, 0, 5, 10);
    VNNI_EXPECT_REGISTERS(ymm, 1, 6, 11);
    VNNI_EXPECT_REGISTERS(ymm, 2, 7, 12);
    VNNI_EXPECT_REGISTERS(ymm, 3, 8, 13);
    VNNI_EXPECT_REGISTERS(ymm, 4, 9, 14);
    VNNI_EXPECT_REGISTERS(ymm, 5, 10, 15);
    VNNI_EXPECT_REGISTERS(ymm, 6, 11, 0);
    VNNI_EXPECT_REGISTERS(ymm, 7, 12, 1);
    VNNI_EXPECT_REGISTERS(ymm, 8, 13, 2);
    VNNI_EXPECT_REGISTERS(ymm, 9, 14, 3);
    VNNI_EXPECT_REGISTERS(ymm, 10, 15, 4);
    VNNI_EXPECT_REGISTERS(ymm, 11, 0, 5);
    VNNI_EXPECT_REGISTERS(ymm, 12, 1, 6);
    VNNI_EXPECT_REGISTERS(ymm, 13, 2, 7);
    VNNI_EXPECT_REGISTERS(ymm, 14, 3, 8);
    VNNI_EXPECT_REGISTERS(ymm, 15, 4, 9);
}

TEST_F(VnniStandIn, TakesTheSameRegisterTwice) {
    VNNI_EXPECT_REGISTERS(ymm, 3, 3, 1);
    VNNI_EXPECT_REGISTERS(ymm, 1, 3, 1);
    VNNI_EXPECT_REGISTERS(ymm, 3, 9, 9);
    VNNI_EXPECT_REGISTERS(ymm, 12, 12, 12);
}

TEST_F(VnniStandIn, Of128BitsClearsTheUpperHalf) {
    VNNI_EXPECT_REGISTERS(xmm, 3, 2, 1);
    VNNI_EXPECT_REGISTERS(xmm, 11, 2, 9);
    VNNI_EXPECT_REGISTERS(xmm, 4, 14, 4);
}

// A sum of four products that has more than 16 bits, in lanes near the ends of 32 bits.
TEST_F(VnniStandIn, WrapsWithoutSaturation) {
    for (const uint8_t factor : {0x80, 0x7f}) {
        for (const uint8_t sum : {0x00, 0x7f, 0x80, 0xff}) {
            Vectors before = RandomVectors(1);
            before[1].fill(sum);
            before[2].fill(0xff);
            before[3].fill(factor);
            Vectors after = before;
            VNNI_RUN("%{vex%} vpdpbusd %%ymm3, %%ymm2, %%ymm1", after, nullptr, 0);
            Expect(before, after, 1, 2, before[3], 32);
        }
    }
}

// The operand is memory[40], which is 1280 bytes after %rsi.
#define VNNI_EXPECT_MEMORY(setup, operand, index, sum, weights)                              \
    do {                                                                                     \
        SCOPED_TRACE(operand);                                                               \
        const Vectors before = RandomVectors(7);                                             \
        Vectors after = before;                                                              \
        VNNI_RUN(setup "%{vex%} vpdpbusd " operand ", %%ymm" #weights ", %%ymm" #sum, after, \
                 memory.data(), index);                                                      \
        Expect(before, after, sum, weights, memory[40], 32);                                 \
    } while (false)

TEST_F(VnniStandIn, ReadsMemory) {
    std::vector<Vector> memory;
    for (uint32_t seed = 20; seed < 25; ++seed) {
        for (const Vector& vector : RandomVectors(seed)) memory.push_back(vector);
    }
    VNNI_EXPECT_MEMORY("add $1280, %%rsi\n", "(%%rsi)", 0, 1, 2);
    VNNI_EXPECT_MEMORY("lea 1248(%%rsi), %%r12\n", "32(%%r12)", 0, 9, 2);
    VNNI_EXPECT_MEMORY("lea 1288(%%rsi), %%r13\n", "-8(%%r13)", 0, 1, 10);
    VNNI_EXPECT_MEMORY("lea 1280(%%rsi), %%r13\n", "(%%r13)", 0, 1, 2);
    VNNI_EXPECT_MEMORY("", "1280(%%rsi)", 0, 15, 15);
    VNNI_EXPECT_MEMORY("", "(%%rsi, %%rcx, 1)", 1280, 1, 2);
    VNNI_EXPECT_MEMORY("", "(%%rsi, %%rcx, 8)", 160, 0, 8);
    VNNI_EXPECT_MEMORY("mov %%rcx, %%r9\n", "1600(%%rsi, %%r9, 4)", -80, 8, 0);
    VNNI_EXPECT_MEMORY("mov %%rsi, %%r13\nmov %%rcx, %%r12\n", "16(%%r13, %%r12, 2)", 632, 11, 12);
    VNNI_EXPECT_MEMORY("add %%rsi, %%rcx\n", "1024(, %%rcx, 1)", 256, 3, 4);
    VNNI_EXPECT_MEMORY("add %%rsi, %%rcx\nsub %%rsp, %%rcx\n", "(%%rsp, %%rcx, 1)", 1280, 5, 6);
    memory[40] = kConstant;
    VNNI_EXPECT_MEMORY("", "%[constant]", 0, 7, 14);
}

// Upper halves that are still in their initial state are zero, whatever the area has there.
TEST_F(VnniStandIn, TakesRegistersInTheirInitialState) {
    const Vectors before = RandomVectors(3);
    Vector sum;
    __asm__ volatile(
        "vzeroall\nmovdqu (%1), %%xmm2\n%{vex%} vpdpbusd (%1), %%ymm2, %%ymm1\nvmovdqu %%ymm1, "
        "(%0)\n"
        "vzeroupper"
        :
        : "r"(sum.data()), "r"(before[0].data())
        : "memory", VNNI_REGISTERS);
    Vectors expected{};
    std::copy_n(before[0].begin(), 16, expected[2].begin());
    Vectors after = expected;
    after[1] = sum;
    Expect(expected, after, 1, 2, before[0], 32);
}

TEST_F(VnniStandIn, LeavesOtherIllegalInstructionsAlone) {
    EXPECT_EXIT(__asm__ volatile("ud2"), testing::KilledBySignal(SIGILL), "");
}

}  // namespace
}  // namespace weft::test

#endif
