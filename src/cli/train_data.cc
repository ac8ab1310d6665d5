// weft train data inspect: what a training run will see of a data set.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/train.h"
#include "model/hyper.h"
#include "model_files/hf/scratch.h"
#include "train/data/inspect.h"

namespace weft::cli {
namespace {

constexpr const char* kFooter =
    "Formats, templates and masks: docs/train-data.md.\n\n"
    "Examples:\n"
    "  weft train data inspect model.gguf --data pubmedqa.json --prompt-type 1 --seq 512\n"
    "  weft train data inspect hf:HuggingFaceTB/SmolLM2-135M --data chat.jsonl --test-split 0.2 "
    "--json";

struct InspectFlags {
    std::string model;
    train::DataWords data;
    int show = 2;
    uint64_t most = 1'000'000;
    bool json = false, pull = false;
};

Status Inspect(const InspectFlags& flags) {
    // (Weights are not needed to look at data.)
    WEFT_ASSIGN(const auto source, model_files::hf::LacksWeights(flags.model)
                                       ? model_files::hf::OpenScratch(flags.model, 0)
                                       : model_files::OpenModel(flags.model));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    WEFT_ASSIGN(const train::OpenedData data, train::OpenData(*source, flags.data, hyper.vocab));
    train::InspectOptions options;
    options.loader = data.loader;
    options.show = flags.show;
    options.most_samples = flags.most;
    WEFT_ASSIGN(const auto report, train::InspectData(*data.set, data.tokenizer.get(), options));
    if (flags.json) {
        PrintJson(train::ReportJson(report));
    } else {
        fmt::print("{}", train::ReportText(report));
    }
    return {};
}

}  // namespace

void AddDataFlags(CLI::App& app, train::DataWords& flags) {
    app.add_option("--data", flags.data,
                   "A JSON or JSON-lines file, or synthetic:random-tokens[:LENGTH[:COUNT]]")
        ->required();
    app.add_option("--prompt-type", flags.prompt_type,
                   "Template of question records: 0 question alone, 1 context then question, 2 "
                   "question then context, 3 no words around, 4 sections, 5 the model's chat "
                   "template")
        ->capture_default_str();
    app.add_option("--seq-len,--seq", flags.sequence, "Tokens of a sequence")
        ->capture_default_str();
    app.add_option("--test-split", flags.test_split, "Share of the records kept for tests")
        ->capture_default_str();
    app.add_option("--seed", flags.seed, "Of the order, the split and random tokens")
        ->capture_default_str();
    app.add_flag_callback(
        "--no-pack", [&flags] { flags.pack = false; }, "One sample a sequence, padded");
    app.add_option("--long", flags.longs, "Samples longer than a sequence: truncate, skip, split")
        ->capture_default_str();
    app.add_flag_callback(
        "--no-shuffle", [&flags] { flags.shuffle = false; }, "In the order of the file");
    app.add_flag("--skip-bad", flags.skip_bad, "Count records that can't be used, and go on");
}

void AddTrainData(CLI::App& train, int& status) {
    CLI::App* data = train.add_subcommand("data", "Training data");
    data->require_subcommand(1);
    auto flags = std::make_shared<InspectFlags>();
    CLI::App* command = data->add_subcommand(
        "inspect", "Lengths, masks and errors of a data set, as training will see it");
    command->footer(kFooter);
    AddModel(*command, flags->model, flags->pull);
    AddDataFlags(*command, flags->data);
    command->add_option("--show", flags->show, "Samples shown with their masks")
        ->capture_default_str();
    command->add_option("--most", flags->most, "Samples read of each part, at most")
        ->capture_default_str();
    AddJson(*command, flags->json);
    SetCallback(command, flags, flags->json, status, [](InspectFlags& f) { return Inspect(f); });
}

}  // namespace weft::cli
