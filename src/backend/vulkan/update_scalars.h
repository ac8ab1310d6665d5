// The numbers of an update that differ from one update to the next. Kernels read each from an
// address in mapped memory, so that the recording of an update stays good.
//
//     UpdateScalars scalars({memory, UpdateScalars::kMost}, address);  // while ops are lowered:
//     args.rate = scalars.Address(UpdateScalarKind::kRate, 0);
//     scalars.Fill({number, rate, gradient_scale});                    // before each update
//
// Thread: one caller. No submission that reads the numbers may be under way during Fill.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/vulkan/dispatch.h"

namespace weft::backend::vulkan {

// Of one update: its number counts from 1; gradients are multiplied by gradient_scale.
struct UpdateNumbers {
    int64_t number = 1;
    double rate = 0, gradient_scale = 1;
};
// Computed in float64 and rounded once.
float ValueOf(UpdateScalarKind kind, double parameter, const UpdateNumbers& update);

class UpdateScalars {
  public:
    static constexpr size_t kMost = 64;
    // memory: mapped, of kMost floats; address: where the device has it.
    UpdateScalars(std::span<float> memory, uint64_t address) : memory_(memory), address_(address) {}
    // The same address for the same number. No more than kMost of them may differ.
    uint64_t Address(UpdateScalarKind kind, double parameter);
    void Fill(const UpdateNumbers& update);

  private:
    struct Scalar {
        UpdateScalarKind kind;
        double parameter;
        bool operator==(const Scalar&) const = default;
    };
    std::span<float> memory_;
    uint64_t address_;
    std::vector<Scalar> scalars_;
    UpdateNumbers update_;  // of the last Fill, and of what is asked for after it
};

}  // namespace weft::backend::vulkan
