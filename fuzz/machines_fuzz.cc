// libFuzzer target: any text as the machines of `weft train --estimate`. What is accepted is sane,
// and so is what a training of a small model there is said to take.
//     build-fuzz/fuzz/machines_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/machines
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "support/tiny_model.h"
#include "train/estimate.h"

namespace {

using namespace weft;
using namespace weft::train;

void CheckWire(const Wire& wire) {
    WEFT_CHECK(wire.bytes_per_s > 0 && std::isfinite(wire.bytes_per_s));
    WEFT_CHECK(wire.latency_s >= 0 && std::isfinite(wire.latency_s));
}

void CheckEstimate(const TrainEstimate& estimate, int stages) {
    WEFT_CHECK(estimate.micro_batch >= 1 && estimate.sequences >= estimate.micro_batch);
    WEFT_CHECK(estimate.flops > 0 && estimate.stages.size() == static_cast<size_t>(stages));
    WEFT_CHECK(estimate.update_s > 0 && !std::isnan(estimate.update_s));
    for (const StageEstimate& stage : estimate.stages) {
        WEFT_CHECK(stage.state_bytes > 0 && stage.work_bytes > 0);
        WEFT_CHECK(stage.compute_s >= 0 && stage.wire_s >= 0 && stage.waited_s >= 0);
        WEFT_CHECK(stage.update_s <= estimate.update_s);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto machines =
        ReadMachines(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    if (!machines.ok()) {
        WEFT_CHECK(!machines.error().message.empty());
        return 0;
    }
    WEFT_CHECK(machines->hosts >= 1 && machines->ranks_per_host >= 1);
    WEFT_CHECK(machines->ranks() <= 1 << 20 && machines->memory_bytes >= 1);
    WEFT_CHECK(machines->flops_per_s > 0 && machines->memory_bytes_per_s > 0);
    if (machines->ranks_per_host > 1) CheckWire(machines->within);
    if (machines->hosts > 1) CheckWire(machines->between);
    if (machines->ranks() > 64) return 0;
    static const model::Hyper hyper = support::SmolLm2Hyper();
    static const auto source = model_files::OpenModel("synthetic:smollm2-135m").value();
    TrainerOptions options;
    options.sequence = 16;
    options.micro_batch = size % 3 == 0 ? 0 : 1;
    options.zero = static_cast<int>(size % 4);
    options.pp = machines->ranks() % 2 == 0 && options.zero < 2 ? 2 : 1;
    const auto estimate = EstimateTraining(options, *source, *machines);
    if (estimate.ok()) {
        CheckEstimate(*estimate, options.pp);
    } else {
        WEFT_CHECK(estimate.error().code == ErrorCode::kOutOfMemory);
    }
    return 0;
}
