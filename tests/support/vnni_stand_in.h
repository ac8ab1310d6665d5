// Executes AVX-VNNI's vpdpbusd on CPUs that lack it, so that they can test the kernels that use it.
// A handler of SIGILL computes the instruction from the thread's saved registers, exactly, and
// continues after it. An instruction takes microseconds. Other illegal instructions end the
// process, as they do without the handler.
#pragma once

#include <signal.h>

#include <cstdint>
#include <cstring>
#include <optional>

#if defined(__x86_64__)
#include <cpuid.h>
#include <ucontext.h>
#endif

namespace weft::test {

#if defined(__x86_64__)

// vpdpbusd with a VEX prefix (Intel SDM, volume 2: VPDPBUSD): each 32-bit lane of register `sum`
// += four products of u8 (register `weights`) and s8 (register `factor`, or memory if that is -1).
struct DotInstruction {
    int sum = 0, weights = 0, factor = -1;
    bool wide = false;  // 256 bits, else 128
    const void* memory = nullptr;
    const uint8_t* next = nullptr;  // the instruction after this one
};

inline uint64_t GeneralRegister(const mcontext_t& saved, int number) {
    constexpr int kPlaces[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<uint64_t>(saved.gregs[kPlaces[number]]);
}

// Reads the memory operand whose ModRM byte is at `at`: [base + index * scale + displacement], or
// relative to the next instruction. b and x: the upper bits of the registers' numbers.
inline void ReadAddress(const uint8_t* at, int b, int x, const mcontext_t& saved,
                        DotInstruction& read) {
    const int mode = at[0] >> 6, kind = at[0] & 7;
    const uint8_t* next = at + 1;
    int base = kind;
    uint64_t address = 0;
    if (kind == 4) {
        const int index = (*next >> 3 & 7) | x;
        if (index != 4) address = GeneralRegister(saved, index) << (*next >> 6);
        base = *next++ & 7;
    }
    const bool no_base = mode == 0 && base == 5;
    if (!no_base) address += GeneralRegister(saved, base | b);
    int32_t displacement = 0;
    if (mode == 1) displacement = static_cast<int8_t>(*next++);
    if (mode == 2 || no_base) {
        std::memcpy(&displacement, next, sizeof displacement);
        next += sizeof displacement;
    }
    if (no_base && kind == 5) address += reinterpret_cast<uint64_t>(next);
    read.memory = reinterpret_cast<const void*>(address + static_cast<uint64_t>(displacement));
    read.next = next;
}

// The instruction at which the thread was interrupted; nullopt if it is another one.
inline std::optional<DotInstruction> ReadDot(const mcontext_t& saved) {
    const auto* at = reinterpret_cast<const uint8_t*>(saved.gregs[REG_RIP]);
    // Three bytes of VEX: map 0F38; W is 0, the prefix is 66. Then the opcode.
    if (at[0] != 0xc4 || (at[1] & 31) != 2 || (at[2] & 0x83) != 1 || at[3] != 0x50) return {};
    const auto upper = [&](int bit) { return (at[1] >> bit & 1) != 0 ? 0 : 8; };
    DotInstruction read;
    read.sum = (at[4] >> 3 & 7) | upper(7);
    read.weights = ~(at[2] >> 3) & 15;
    read.wide = (at[2] & 4) != 0;
    if (at[4] >> 6 == 3) {
        read.factor = (at[4] & 7) | upper(5);
        read.next = at + 5;
    } else {
        ReadAddress(at + 4, upper(5), upper(6), saved, read);
    }
    return read;
}

// Where the XSAVE area has the upper halves of ymm registers. (A virtual machine takes long for
// CPUID, so it runs once.)
inline size_t UpperHalvesOffset() {
    static const size_t offset = [] {
        uint32_t a = 0, b = 0, c = 0, d = 0;
        __cpuid_count(0xd, 2, a, b, c, d);
        return b;
    }();
    return offset;
}

// The vector registers that the kernel saved before it called the handler (Intel SDM, volume 1:
// XSAVE area, standard format). The lower halves of ymm registers are at 160. At 512 is a bit field
// of the parts that are not in their initial state (zero).
class SavedVectors {
  public:
    explicit SavedVectors(const mcontext_t& saved)
        : area_(reinterpret_cast<uint8_t*>(saved.fpregs)), upper_(area_ + UpperHalvesOffset()) {
        uint64_t parts = 0;
        std::memcpy(&parts, area_ + 512, sizeof parts);
        if ((parts & kLowerPart) == 0) std::memset(area_ + 160, 0, 16 * 16);
        if ((parts & kUpperPart) == 0) std::memset(upper_, 0, 16 * 16);
        parts |= kLowerPart | kUpperPart;
        std::memcpy(area_ + 512, &parts, sizeof parts);
    }
    void Load(int number, uint8_t* to) const {
        std::memcpy(to, area_ + 160 + 16 * number, 16);
        std::memcpy(to + 16, upper_ + 16 * number, 16);
    }
    void Store(int number, const uint8_t* from) {
        std::memcpy(area_ + 160 + 16 * number, from, 16);
        std::memcpy(upper_ + 16 * number, from + 16, 16);
    }

  private:
    static constexpr uint64_t kLowerPart = 2, kUpperPart = 4;
    uint8_t* area_;
    uint8_t* upper_;
};

// Whether the kernel saved more than the 512 bytes of FXSAVE: a mark in their unused end.
inline bool HasSavedVectors(const mcontext_t& saved) {
    constexpr uint32_t kMark = 0x46505853;  // FP_XSTATE_MAGIC1
    uint32_t mark = 0;
    if (saved.fpregs != nullptr) {
        std::memcpy(&mark, reinterpret_cast<const uint8_t*>(saved.fpregs) + 464, sizeof mark);
    }
    return mark == kMark;
}

inline void Execute(const DotInstruction& dot, SavedVectors vectors) {
    const size_t bytes = dot.wide ? 32 : 16;
    uint8_t sums[32], weights[32], factors[32];
    vectors.Load(dot.sum, sums);
    vectors.Load(dot.weights, weights);
    if (dot.factor >= 0) vectors.Load(dot.factor, factors);
    if (dot.factor < 0) std::memcpy(factors, dot.memory, bytes);
    for (size_t lane = 0; lane < bytes; lane += 4) {
        uint32_t sum = 0;
        std::memcpy(&sum, sums + lane, sizeof sum);
        for (size_t i = lane; i < lane + 4; ++i) {
            sum += static_cast<uint32_t>(int{weights[i]} * static_cast<int8_t>(factors[i]));
        }
        std::memcpy(sums + lane, &sum, sizeof sum);
    }
    std::memset(sums + bytes, 0, sizeof sums - bytes);
    vectors.Store(dot.sum, sums);
}

inline void OnIllegalInstruction(int signal, siginfo_t*, void* context) {
    mcontext_t& saved = static_cast<ucontext_t*>(context)->uc_mcontext;
    const std::optional<DotInstruction> dot = ReadDot(saved);
    if (!dot || !HasSavedVectors(saved)) {
        ::signal(signal, SIG_DFL);
        ::raise(signal);  // when this handler has returned
        return;
    }
    Execute(*dot, SavedVectors(saved));
    saved.gregs[REG_RIP] = reinterpret_cast<greg_t>(dot->next);
}

#endif

// Lets this process execute vpdpbusd. Returns whether it can: not without AVX2, whose registers the
// instruction uses.
inline bool InstallVnniStandIn() {
#if defined(__x86_64__)
    static const bool installed = [] {
        struct sigaction action = {};
        action.sa_sigaction = OnIllegalInstruction;
        action.sa_flags = SA_SIGINFO;
        return __builtin_cpu_supports("avx2") != 0 && UpperHalvesOffset() != 0 &&
               ::sigaction(SIGILL, &action, nullptr) == 0;
    }();
    return installed;
#else
    return false;
#endif
}

}  // namespace weft::test
