// Shares of unlike ranks (--tensor-split auto): by the bytes of weights that each device reads a
// second, measured at the start by products of one row, as in decoding; no more than its memory
// holds.
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
    uint64_t room_bytes = 0;  // for weights; 0: not known
};

// The type of weights whose speed is a model's: the one of that name (ModelSource::MainType).
DType MeasuredType(std::string_view main_type);

// ready: called once all is prepared, before the clock starts (so that ranks of one host measure at
// once, and share its memory as they will). Takes some 100 MiB of the device's memory and half a
// second. Errors: the device's, those of `ready`.
Result<RankSpeed> MeasureSpeed(backend::Device& device, DType weights,
                               const std::function<Status()>& ready);

// Shares as model::MakeLayout takes them, for ranks in world order; empty: even ones, where none is
// a tenth faster than another and all hold their part. Of tensor ranks in several stages, the
// stages get theirs, each as fast as its slowest rank lets it be.
std::vector<double> SharesBySpeed(std::span<const RankSpeed> ranks, const model::Layout& layout,
                                  uint64_t model_bytes);

}  // namespace weft::engine
