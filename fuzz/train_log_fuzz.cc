// libFuzzer target: any bytes as a training log in CSV that a resumed run continues.
//     build-fuzz/fuzz/train_log_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/train_log
#include <charconv>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "support/temp_dir.h"
#include "train/log/train_log.h"

using namespace weft;
using namespace weft::train;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const test::TempDir folder;
    const auto step = static_cast<int64_t>(size % 7);
    TrainLogOptions options;
    options.csv = folder / "log";
    options.columns = {"loss"};
    options.first_step = step;
    WEFT_CHECK(WriteFile(options.csv, std::as_bytes(std::span(data, size))).ok());
    auto log = TrainLog::Open(options);
    if (!log.ok()) {
        WEFT_CHECK(log.error().code == ErrorCode::kUsage);
        return 0;
    }
    const double loss[] = {0.5};
    WEFT_CHECK(log->Add(step, loss).ok());
    const std::string text = ReadTextFile(options.csv).value();
    const std::string head = "step,loss\n";
    WEFT_CHECK(text.starts_with(head) && text.ends_with(fmt::format("\n{},0.5\n", step)));
    // The steps ascend to the new one.
    double last = -1;
    for (size_t at = head.size(); at < text.size(); at = text.find('\n', at) + 1) {
        double row = -1;
        std::from_chars(text.data() + at, text.data() + text.size(), row);
        WEFT_CHECK(row > last);
        last = row;
    }
    WEFT_CHECK(last == static_cast<double>(step));
    return 0;
}
