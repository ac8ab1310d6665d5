// Scalars of an optimizer update that differ from one update to the next. Kernels read each scalar
// from an address in mapped memory, so the recording of an update stays valid.
//
//     UpdateScalars scalars({memory, UpdateScalars::kMost}, address);  // while ops are lowered:
//     args.rate = scalars.Address(UpdateScalarKind::kRate, 0);
//     scalars.Fill({number, rate, gradient_scale});                    // before each update
//
// Thread: one caller. While Fill() runs, no submission that reads the scalars may be under way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/gpu/dispatch/dispatch.h"

namespace weft::backend::on_gpu {

// The numbers of one update. `number` counts updates from 1. Gradients are multiplied by
// gradient_scale.
struct UpdateNumbers {
    int64_t number = 1;
    double rate = 0, gradient_scale = 1, average_share = 0;
};
// Returns the value of a scalar in an update. The value is computed in float64 and rounded once.
float ValueOf(UpdateScalarKind kind, double parameter, const UpdateNumbers& update);

class UpdateScalars {
  public:
    static constexpr size_t kMost = 64;
    // memory: kMost mapped floats; address: their device address.
    UpdateScalars(std::span<float> memory, uint64_t address) : memory_(memory), address_(address) {}
    // Returns the address of a scalar. Calls with the same arguments return the same address. At
    // most kMost different scalars are possible.
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
    UpdateNumbers update_;  // from the last Fill; used for scalars added later
};

}  // namespace weft::backend::on_gpu
