#include "train/parallel/pipeline.h"

#include <algorithm>

namespace weft::train {

int SlotsOf(int stage, int stages) {
    return stages - stage;
}

std::vector<StagePass> SchedulePasses(int stage, int stages, int64_t micro_batches) {
    const int slots = SlotsOf(stage, stages);
    const auto slot = [&](int64_t micro_batch) { return static_cast<int>(micro_batch % slots); };
    const int64_t ahead = std::min<int64_t>(slots - 1, micro_batches);
    std::vector<StagePass> passes;
    for (int64_t i = 0; i < micro_batches + ahead; ++i) {
        if (i < micro_batches) passes.push_back({true, i, slot(i)});
        if (i >= ahead) passes.push_back({false, i - ahead, slot(i - ahead)});
    }
    return passes;
}

}  // namespace weft::train
