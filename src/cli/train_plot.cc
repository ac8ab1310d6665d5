// weft train plot: curves of training logs as one SVG or PNG file.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "cli/flags.h"
#include "cli/output.h"
#include "cli/plot.h"
#include "cli/train.h"
#include "train/log/train_plot.h"

namespace weft::cli {
namespace {

constexpr const char* kTrainPlotFooter =
    "Examples:\n"
    "  weft train plot run/log.csv -o run.svg\n"
    "  weft train plot a/log.csv b/lines.json --columns loss --smooth 0.9 -o loss.png\n"
    "\n"
    "A PNG is drawn by rsvg-convert (Debian's package librsvg2-bin), if that is there.";

struct PlotFlags {
    std::vector<std::string> logs;
    std::string out;
    train::TrainPlotOptions options;
    bool json = false;
};

Status Draw(const PlotFlags& flags) {
    std::vector<train::TrainSeries> runs;
    for (const std::string& log : flags.logs) {
        WEFT_ASSIGN(train::TrainSeries run, train::ReadTrainLog(log));
        runs.push_back(std::move(run));
    }
    WEFT_ASSIGN(const std::string svg, train::TrainPlotSvg(runs, flags.options));
    WEFT_TRY(WriteDrawing(flags.out, svg));
    size_t rows = 0;
    for (const train::TrainSeries& run : runs) rows += run.steps.size();
    if (flags.json) {
        PrintJson({{"file", flags.out}, {"runs", runs.size()}, {"rows", rows}});
    } else {
        PrintOut("{}: {} rows of {} runs\n", flags.out, rows, runs.size());
    }
    return {};
}

}  // namespace

void AddTrainPlot(const Command& train, int& status) {
    auto flags = std::make_shared<PlotFlags>();
    const Command command = train.AddCommand("plot", "Plot training logs as an SVG or PNG file");
    command.Footer(kTrainPlotFooter);
    command.AddOption("LOG", flags->logs, "CSV or JSON-lines files with a column 'step'")
        .Required();
    command.AddOption("-o,--out", flags->out, "File to write: NAME.svg or NAME.png").Required();
    command
        .AddOption("--columns", flags->options.columns,
                   "Columns to plot (default: loss, eval_loss, lr, tokens_per_s, grad_norm)")
        .Commas();
    command
        .AddOption("--smooth", flags->options.smooth,
                   "Exponential smoothing, 0 to below 1; 0.9 averages about ten rows")
        .ShowDefault();
    AddJson(command, flags->json);
    SetCallback(command, flags, flags->json, status, [](PlotFlags& f) { return Draw(f); });
}

}  // namespace weft::cli
