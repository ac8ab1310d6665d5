// Shares of the model for ranks with unlike devices (--tensor-split auto). A share is proportional
// to the weight bytes that the rank's device reads per second, and limited by the device's memory.
// The speed is measured at the start of the job, with matrix-vector products, as in decode.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "model/shard.h"
#include "tensor/dtype.h"

namespace weft::engine {

struct RankSpeed {
    double bytes_per_s = 0;
    uint64_t space_bytes = 0;  // free memory for weights; 0: unknown
};

// The weight type with which the speed is measured for a model whose main type is `main_type`
// (ModelSource::MainType).
DType MeasuredType(std::string_view main_type);

struct SpeedTrial {
    // Called once, after preparation and before the measurement. It waits for the other ranks, so
    // that the ranks of one host measure at the same time and compete for the host's memory
    // bandwidth.
    std::function<Status()> ready;
    // Not 0: weight bytes that a decode step reads between two all-reduces. The matrices are at
    // most as large as these, if possible.
    double piece_bytes = 0;
    // Called after the measurement, with a function that computes with about `piece_bytes` of
    // weights. May be null.
    std::function<Status(const std::function<Status()>& compute_piece)> then{};
};
// Takes about 100 MiB of device memory and half a second, besides `then`. Errors: errors of the
// device and of the trial's functions.
Result<RankSpeed> MeasureSpeed(backend::Device& device, DType weights, const SpeedTrial& trial);

// Shares for model::MakeLayout, in the order of ranks. Empty means even shares: no rank is a tenth
// faster than another, and all have enough memory. With several stages of tensor ranks, returns the
// shares of the stages; the slowest rank sets the speed of a stage.
std::vector<double> SharesBySpeed(std::span<const RankSpeed> ranks, const model::Layout& layout,
                                  uint64_t model_bytes);

}  // namespace weft::engine
