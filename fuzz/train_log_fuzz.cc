// libFuzzer target: any bytes as a training log, CSV or JSON lines: read, plotted, and continued by
// a resumed run.
//     build-fuzz/fuzz/train_log_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/train_log
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/utf8.h"
#include "support/temp_dir.h"
#include "train/log/train_log.h"
#include "train/log/train_plot.h"

namespace {

using namespace weft;
using namespace weft::train;

void CheckSeries(const TrainSeries& series) {
    WEFT_CHECK(!series.steps.empty() && series.steps.front() >= 0);
    WEFT_CHECK(std::ranges::is_sorted(series.steps, std::less_equal()) &&
               series.values.size() == series.columns.size() && series.columns.size() <= 256);
    for (const auto& column : series.values) WEFT_CHECK(column.size() == series.steps.size());
}

// A document that a reader of XML takes: UTF-8, no control characters, numbers in its places.
void CheckPlot(const TrainSeries& series, double smooth) {
    TrainPlotOptions options{series.columns, smooth};
    options.columns.resize(std::min<size_t>(options.columns.size(), 4));
    const auto svg = TrainPlotSvg({&series, 1}, options);
    if (!svg.ok()) {
        WEFT_CHECK(series.columns.empty());
        return;
    }
    WEFT_CHECK(svg->ends_with("</svg>\n") && IsUtf8(*svg));
    for (const char c : *svg) WEFT_CHECK(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
    for (const char* none : {"\"nan", "\"-nan", "\"inf", "\"-inf", ",nan", ",-nan", ",inf", ",-inf",
                             " nan", " -nan", " inf,", " -inf,"}) {
        const size_t at = svg->find(none);
        // (Words of the file stand behind '>' alone.)
        WEFT_CHECK(at == svg->npos || svg->rfind('>', at) > svg->rfind('<', at));
    }
}

// What a resumed run leaves of the file can be read, has no later steps, and takes the next one.
void CheckResumed(const std::string& path, const std::string& head, int64_t step) {
    TrainLogOptions options;
    options.columns = {"loss"};
    options.first_step = step;
    (head.empty() ? options.jsonl : options.csv) = path;
    auto log = TrainLog::Open(options);
    if (!log.ok()) {
        WEFT_CHECK(log.error().code == ErrorCode::kUsage && !head.empty());
        return;
    }
    const double loss[] = {0.5};
    WEFT_CHECK(log->Add(step, loss).ok());
    const auto series = ReadTrainLog(path);
    WEFT_CHECK(series.ok());
    CheckSeries(*series);
    WEFT_CHECK(series->steps.back() == step);
    const auto column = std::ranges::find(series->columns, "loss") - series->columns.begin();
    WEFT_CHECK(series->values[static_cast<size_t>(column)].back() == 0.5);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const test::TempDir folder;
    const std::string path = folder / "log";
    const auto bytes = std::as_bytes(std::span(data, size));
    WEFT_CHECK(WriteFile(path, bytes).ok());
    const auto series = ReadTrainLog(path);
    if (series.ok()) {
        CheckSeries(*series);
        CheckPlot(*series, size % 2 == 0 ? 0 : 0.9);
    } else {
        WEFT_CHECK(!series.error().message.empty());
    }
    CheckResumed(path, "step,loss\n", static_cast<int64_t>(size % 7));
    WEFT_CHECK(WriteFile(path, bytes).ok());
    CheckResumed(path, "", static_cast<int64_t>(size % 7));
    return 0;
}
