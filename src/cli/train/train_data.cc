// weft train data inspect: shows what a training run will see of a data set.
#include "cli/commands.h"
#include "cli/train/train.h"
#include "model/hyper.h"
#include "model_files/hf/scratch.h"
#include "train/data/day.h"
#include "train/data/inspect.h"

namespace weft::cli {
namespace {

constexpr const char* kTrainDataFooter =
    "Formats, templates and masks: docs/train-data.md.\n\n"
    "Examples:\n"
    "  weft train data inspect model.gguf --data pubmedqa.json --prompt-type 1 --seq 512\n"
    "  weft train data inspect hf:HuggingFaceTB/SmolLM2-135M --data chat.jsonl --test-split 0.2 "
    "--json";

struct DataFlags {
    std::string model;
    train::DatasetOptions data;
    int show = 2;
    uint64_t most = 1'000'000;
    bool json = false, pull = false;
};

Status Inspect(DataFlags& flags) {
    // (Data inspection needs no weights.)
    WEFT_ASSIGN(const auto source, model_files::hf::LacksWeights(flags.model)
                                       ? model_files::hf::OpenScratch(flags.model, 0)
                                       : model_files::OpenModel(flags.model));
    int64_t rows = 0;
    if (!source->tensors().empty()) {  // otherwise there is only a vocabulary
        WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
        rows = hyper.vocab;
        WEFT_TRY(train::SetSequence(hyper, flags.data.sequence));
    }
    if (flags.data.sequence == 0) flags.data.sequence = train::kDefaultSequence;
    WEFT_ASSIGN(const train::OpenedData data, train::OpenData(*source, flags.data, rows));
    train::InspectOptions options;
    options.loader = data.loader;
    options.show = flags.show;
    options.most_samples = flags.most;
    WEFT_ASSIGN(const auto report, train::InspectData(*data.set, data.tokenizer.get(), options));
    if (flags.json) {
        PrintJson(train::ReportJson(report));
    } else {
        PrintOut("{}", train::ReportText(report));
    }
    return {};
}

}  // namespace

void AddDataFlags(const Command& app, train::DatasetOptions& flags) {
    const Command shown = app.ShowDefaults();
    flags.day = train::Today();
    app.AddEach("--data", flags.data,
                "File of records (Parquet, JSON, JSON lines, CSV, TSV, plain text, also "
                "compressed), folder "
                "of such files, or hf:datasets/OWNER/NAME[:CONFIG][/SPLIT] (weft pull); may be "
                "repeated; or synthetic:random-tokens[:LENGTH[:COUNT]]")
        .Required();
    app.AddOption("--data-weights", flags.weights,
                  "Share of each --data in an epoch, as 0.7,0.3, in the order of --data (default: "
                  "all records once)")
        .Commas();
    shown.AddOption(
        "--prompt-type", flags.prompt_type,
        "Template of question records: 0 question alone, 1 context then question, 2 question then "
        "context, 3 no added words, 4 sections, 5 the model's chat template");
    shown.AddChoice("--loss", flags.loss,
                    {"sft", "dpo", "ipo", "orpo", "kto", "simpo", "grpo", "reward",
                     "classification", "contrastive"},
                    "Loss: sft (cross-entropy of the learned tokens); over preferences: dpo, ipo, "
                    "orpo, kto or simpo; over rewards of completions that the model generates: "
                    "grpo; of a score head: reward (of pairs), classification; of embeddings: "
                    "contrastive");
    shown.AddChoice("--control-tokens", flags.control_tokens, {"auto", "parse", "letters"},
                    "Control tokens spelled out in text, prompt and completion: auto (parse them "
                    "if the chat template writes all of them), parse, letters");
    app.AddNumber("--seq-len,--seq", flags.sequence, 1, 1 << 20, "Tokens per sequence")
        .DefaultText("1024, at most the model's context");
    shown.AddOption("--test-split", flags.test_split, "Share of the records to hold out for tests");
    shown.AddOption("--seed", flags.seed, "Seed of the order, the split and random tokens");
    app.AddFlag(
        "--no-pack", [&flags] { flags.pack = false; },
        "Put one sample into each sequence, padded, instead of packing");
    shown.AddOption("--long", flags.longs,
                    "Samples longer than a sequence: truncate, skip or split");
    app.AddFlag(
        "--no-shuffle", [&flags] { flags.shuffle = false; }, "Keep the order of the file");
    app.AddFlag("--skip-bad", flags.skip_bad, "Skip and count unusable records");
}

void AddTrainData(const Command& train, int& status) {
    const Command data = train.AddCommand("data", "Training data");
    data.NeedsCommand();
    auto flags = std::make_shared<DataFlags>();
    const Command command = data.AddCommand(
        "inspect", "Show lengths, masks and errors of a data set, as training reads it",
        kTrainDataFooter);
    const Command shown = command.ShowDefaults();
    AddModel(command, flags->model, flags->pull);
    AddDataFlags(command, flags->data);
    shown.AddOption("--show", flags->show, "Number of samples to show with their masks");
    shown.AddOption("--most", flags->most, "Maximum samples to read from each part");
    SetJsonCallback(command, flags, status, [](DataFlags& f) { return Inspect(f); });
}

}  // namespace weft::cli
