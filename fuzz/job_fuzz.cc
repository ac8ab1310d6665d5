// libFuzzer target: any bytes as a job or a figure from another rank. The first byte picks the
// message. A message that decodes encodes to text that decodes to the same text.
//     build-fuzz/fuzz/job_fuzz -max_total_time=60 -malloc_limit_mb=64 fuzz/corpus/job
#include <cstdint>
#include <string>

#include "base/check.h"
#include "engine/job.h"
#include "engine/report.h"
#include "engine/start/examine.h"
#include "fabric/job.h"
#include "train/train_job.h"

namespace {

template <typename Encode, typename Decode>
void RoundTrip(const std::string& text, const Encode& encode, const Decode& decode) {
    const auto message = decode(text);
    if (!message.ok()) return;
    const std::string again = encode(*message);
    const auto back = decode(again);
    WEFT_CHECK(back.ok() && encode(*back) == again);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto job_of = [](const std::string& json) { return weft::engine::JobFromJson(json); };
    const auto train_job_of = [](const std::string& json) {
        return weft::train::TrainJobFromJson(json);
    };
    switch (data[0] % 6) {
        case 0: RoundTrip(text, weft::engine::JobToJson, job_of); break;
        case 1: RoundTrip(text, weft::fabric::NetJobToJson, weft::fabric::NetJobFromJson); break;
        case 2: RoundTrip(text, weft::fabric::NetRowToJson, weft::fabric::NetRowFromJson); break;
        case 3: RoundTrip(text, weft::train::TrainJobToJson, train_job_of); break;
        case 4: RoundTrip(text, weft::engine::ReportToJson, weft::engine::ReportFromJson); break;
        case 5: RoundTrip(text, weft::engine::EncodeTerms, weft::engine::DecodeTerms); break;
    }
    return 0;
}
