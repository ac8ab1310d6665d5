// libFuzzer target: any text as a machine file, as the words of a cluster, and as the config.json
// of a model without other files. Accepted input has valid figures, and a prediction from it
// succeeds or is refused.
//     build-fuzz/fuzz/plan_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/plan
#include <cmath>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "plan/predict.h"
#include "plan/shapes.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const plan::Library library = *plan::Library::Open();
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto cluster = library.ParseCluster("2xstrix-halo,roce");
    const auto machine = plan::ParseMachine(text, "box", "box.json");
    if (machine.ok()) WEFT_CHECK(std::isfinite(machine->sustained_bytes_per_s()));
    if (text.find('/') == text.npos && text.find(".json") == text.npos) {
        (void)library.ParseCluster(text).ok();  // (no files are read)
    }
    const auto source = plan::MakeShape(text, "model", "");
    if (!source.ok() || (*source)->tensors().size() > 1000) return 0;
    const auto walk = plan::ModelWalk::Make(**source, DType::kF16);
    if (!walk.ok()) return 0;
    model::Layout layout;
    layout.tp = 2;
    const auto prediction = plan::Predict(*walk, *cluster, layout, plan::Workload{});
    if (prediction.ok()) WEFT_CHECK(prediction->tok_s > 0);
    return 0;
}
