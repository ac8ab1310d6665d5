// The kernels of every instruction set of this CPU, so that each test runs on all of them, and
// random inputs for these tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "hw/cpu.h"
#include "kernels/kernels.h"
#include "kernels/reference/ops.h"

namespace weft::kernels::test {

struct Ops : Kernels {
    const char* name;
};

inline std::vector<Ops> OpLevels() {
    std::vector<Ops> levels;
    for (const CpuLevel level : UsableCpuLevels(DetectCpu())) {
        levels.push_back({KernelsFor(level), CpuLevelName(level)});
    }
    return levels;
}

// Runs all parts of a kernel, one after another.
template <typename Kernel, typename Args>
void RunParts(Kernel kernel, const Args& args, int parts) {
    for (int part = 0; part < parts; ++part) kernel(args, part, parts);
}

class Random {
  public:
    explicit Random(uint32_t seed) : engine_(seed) {}
    int64_t Int(int64_t least, int64_t most) {
        return std::uniform_int_distribution<int64_t>(least, most)(engine_);
    }
    template <typename T>
    T Pick(std::initializer_list<T> from) {
        return *(from.begin() + Int(0, static_cast<int64_t>(from.size()) - 1));
    }
    float Normal(float deviation = 1) {
        return std::normal_distribution<float>(0, deviation)(engine_);
    }
    std::vector<float> Normals(int64_t count, float deviation = 1) {
        std::vector<float> values(static_cast<size_t>(count));
        for (float& value : values) value = Normal(deviation);
        return values;
    }
    template <typename T>
    void Shuffle(std::vector<T>& values) {
        std::shuffle(values.begin(), values.end(), engine_);
    }

  private:
    std::mt19937 engine_;
};

inline constexpr double kUlp = 0x1p-24;  // half the spacing of floats at 1: one rounding

}  // namespace weft::kernels::test
