#include "backend/gpu/dispatch/update_scalars.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace weft::backend::on_gpu {

float ValueOf(UpdateScalarKind kind, double parameter, const UpdateNumbers& update) {
    const auto number = static_cast<double>(update.number);
    switch (kind) {
        case UpdateScalarKind::kRate: return static_cast<float>(update.rate);
        case UpdateScalarKind::kGradientScale: return static_cast<float>(update.gradient_scale);
        case UpdateScalarKind::kCorrection:
            return static_cast<float>(1 - std::pow(parameter, number));
        case UpdateScalarKind::kPower: return static_cast<float>(std::pow(number, parameter));
        case UpdateScalarKind::kFirst: return update.number == 1 ? 1.0f : 0.0f;
        case UpdateScalarKind::kAverageShare: return static_cast<float>(update.average_share);
    }
    return 0;
}

uint64_t UpdateScalars::Address(UpdateScalarKind kind, double parameter) {
    const Scalar wanted{kind, parameter};
    const auto found = std::ranges::find(scalars_, wanted);
    const auto at = static_cast<size_t>(found - scalars_.begin());
    if (found == scalars_.end()) {
        WEFT_CHECK(at < memory_.size());
        scalars_.push_back(wanted);
        memory_[at] = ValueOf(kind, parameter, update_);
    }
    return address_ + at * sizeof(float);
}

void UpdateScalars::Fill(const UpdateNumbers& update) {
    update_ = update;
    for (size_t i = 0; i < scalars_.size(); ++i) {
        memory_[i] = ValueOf(scalars_[i].kind, scalars_[i].parameter, update);
    }
}

}  // namespace weft::backend::on_gpu
