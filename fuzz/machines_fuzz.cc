// libFuzzer target: any text as a machine file. The target predicts the training of a small model
// on two such machines. An accepted file has valid figures, and so has the predicted update.
//     build-fuzz/fuzz/machines_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/machines
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "plan/shapes.h"
#include "plan/train_predict.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const plan::Library library = *plan::Library::Open();
    static const plan::OpenedShape shape = *plan::OpenWalk("qwen3-0.6b");
    static const plan::TrainJob job = [] {
        plan::TrainJob short_one;
        short_one.sequence = 16;
        return short_one;
    }();
    static plan::TrainWalk walk = *plan::TrainWalk::Make(shape.walk, job);
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto machine = plan::ParseMachine(text, "box", "box.json");
    if (!machine.ok()) {
        WEFT_CHECK(!machine.error().message.empty());
        return 0;
    }
    plan::ClusterSpec cluster;
    cluster.hosts.assign(2, *machine);
    cluster.wire = *library.FindWire("roce");
    const plan::TrainLinks links(cluster);
    WEFT_CHECK(links.device().products > 0 && links.device().memory > 0);
    plan::TrainCut cut;
    cut.dp = std::min(links.ranks(), 64);
    cut.zero = static_cast<int>(size % 4);
    const auto p = plan::PredictTraining(walk, links, cut);
    WEFT_CHECK(p.ok());
    WEFT_CHECK(p->update_s > 0 && !std::isnan(p->update_s));
    WEFT_CHECK(p->worst().state > 0 && p->worst().work > 0);
    return 0;
}
