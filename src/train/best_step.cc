#include "train/best_step.h"

#include <cmath>

namespace weft::train {

using model_files::hf::Json;

bool BestStep::Note(double loss, int64_t step) {
    // (As transformers' EarlyStoppingCallback: a loss that is lower by less than the threshold is
    // the best one, but no progress.)
    since_ = step_ == 0 || loss < loss_ - rule_.threshold ? 0 : since_ + 1;
    if (step_ != 0 && !(loss < loss_)) return false;
    loss_ = loss;
    step_ = step;
    return true;
}

Json BestStep::ToJson() const {
    return {loss_, step_, since_};
}

Status BestStep::Restore(const Json& state) {
    const bool three = state.is_array() && state.size() == 3 && state[0].is_number() &&
                       state[1].is_number_unsigned() && state[2].is_number_unsigned();
    if (!three || !std::isfinite(state[0].get<double>())) {
        return MakeError(ErrorCode::kCorrupt, "'best' is {}; expected a loss, a step and a count",
                         state.dump());
    }
    loss_ = state[0].get<double>();
    step_ = state[1].get<int64_t>();
    since_ = state[2].get<int64_t>();
    return {};
}

}  // namespace weft::train
