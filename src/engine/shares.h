// Shares of unlike ranks (--tensor-split auto), proportional to the weight bytes that each device
// reads per second, and limited by its memory. Measured at the start with products of one row, as
// in decode.
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
    uint64_t room_bytes = 0;  // for weights; 0: unknown
};

// The weight type to measure for a model whose main type has that name (ModelSource::MainType).
DType MeasuredType(std::string_view main_type);

// ready: called once, after preparation and before the clock starts, so that ranks of one host
// measure at once and compete for its memory. Uses some 100 MiB of device memory and half a second.
// Errors: the device's, those of `ready`.
Result<RankSpeed> MeasureSpeed(backend::Device& device, DType weights,
                               const std::function<Status()>& ready);

// Shares for model::MakeLayout, in world order. Empty: even shares, if no rank is a tenth faster
// than another and all have room. With several stages of tensor ranks, the result is the stages'
// shares; the slowest rank sets the speed of a stage.
std::vector<double> SharesBySpeed(std::span<const RankSpeed> ranks, const model::Layout& layout,
                                  uint64_t model_bytes);

}  // namespace weft::engine
