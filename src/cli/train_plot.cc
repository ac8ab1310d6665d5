// weft train plot: curves of training logs as one SVG file.
#include <fmt/format.h>

#include <memory>
#include <span>
#include <vector>

#include "base/file.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/train.h"
#include "train/log/train_plot.h"

namespace weft::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  weft train plot run/train.csv -o run.svg\n"
    "  weft train plot a/train.jsonl b/train.jsonl --columns loss --smooth 0.9 -o loss.svg";

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
    WEFT_TRY(WriteFile(flags.out, std::as_bytes(std::span(svg))));
    size_t rows = 0;
    for (const train::TrainSeries& run : runs) rows += run.steps.size();
    if (flags.json) {
        PrintJson({{"file", flags.out}, {"runs", runs.size()}, {"rows", rows}});
    } else {
        fmt::print("{}: {} rows of {} runs\n", flags.out, rows, runs.size());
    }
    return {};
}

}  // namespace

void AddTrainPlot(CLI::App& train, int& status) {
    auto flags = std::make_shared<PlotFlags>();
    CLI::App* command = train.add_subcommand("plot", "Curves of training logs as an SVG file");
    command->footer(kFooter);
    command->add_option("LOG", flags->logs, "CSV files or JSON lines with a column 'step'")
        ->required();
    command->add_option("-o,--out", flags->out, "The SVG file")->required();
    command
        ->add_option("--columns", flags->options.columns,
                     "Which columns (unsaid: loss, test_loss, lr, tokens_per_s, grad_norm)")
        ->delimiter(',');
    command
        ->add_option("--smooth", flags->options.smooth,
                     "Exponential mean, 0 to below 1: 0.9 is over some ten rows")
        ->capture_default_str();
    AddJson(*command, flags->json);
    SetCallback(command, flags, flags->json, status, [](PlotFlags& f) { return Draw(f); });
}

}  // namespace weft::cli
