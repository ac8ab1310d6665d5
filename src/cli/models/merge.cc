// weft merge: merges a LoRA adapter into a model's weights, as one GGUF file or a folder.
#include <vector>

#include "base/log.h"
#include "cli/command_line/output_path.h"
#include "cli/commands.h"
#include "model_files/lora/merged_source.h"
#include "model_files/weight_file.h"
#include "train/export.h"

namespace weft::cli {
namespace {

constexpr const char* kMergeFooter =
    "Each matrix with an adapter becomes W + scale * B . A, computed in float32 and rounded to\n"
    "the requested type. DIR is a folder of 'weft train --lora' or of the Python package peft.\n\n"
    "Examples:\n"
    "  weft merge model.gguf --lora tuned -o merged.gguf\n"
    "  weft merge ~/models/Qwen3-8B --lora tuned -o merged.gguf --save-type Q4_K_M";

struct MergeFlags {
    std::string model, adapter, out, format = "gguf", type = "F32";
    int threads = 0;
    bool force = false, json = false, pull = false;
};

Status Merge(MergeFlags& flags) {
    WEFT_ASSIGN(auto model, model_files::OpenModel(flags.model));
    std::vector<std::string> inputs = {flags.model, flags.adapter};
    for (const model_files::WeightFile* file : model->Files()) inputs.push_back(file->path());
    WEFT_TRY(
        CheckOutput({.name = "--out", .path = flags.out, .folder = flags.format == "hf"}, inputs));
    WEFT_ASSIGN(const auto merged,
                model_files::MergedSource::Make(std::move(model), flags.adapter));
    const std::string left_out = merged->plan().LeftOutText();
    if (!left_out.empty()) Log(LogLevel::kWarning, "{}", left_out);
    WEFT_TRY(train::WriteMerged(*merged, {.path = flags.out,
                                          .format = flags.format,
                                          .type = flags.type,
                                          .threads = flags.threads,
                                          .replace = flags.force,
                                          .stop = CatchInterrupts()}));
    if (flags.json) {
        PrintJson({{"out", flags.out}, {"merged", merged->changes().size()}});
    } else {
        PrintOut("{}: {} of {} tensors with an adapter\n", flags.out, merged->changes().size(),
                 merged->tensors().size());
    }
    return {};
}

}  // namespace

void AddMerge(const Command& app, int& status) {
    auto flags = std::make_shared<MergeFlags>();
    const Command command =
        app.AddCommand("merge", "Merge a LoRA adapter into a model's weights", kMergeFooter);
    const Command shown = command.ShowDefaults();
    AddModel(command, flags->model, flags->pull);
    command.AddOption("--lora", flags->adapter, "Folder of the adapter").Required();
    command.AddOption("-o,--out", flags->out, "File or folder to write").Required();
    shown.AddOption("--save-format", flags->format,
                    "Format of the result: gguf (a file) or hf (a Hugging Face folder)");
    shown.AddOption("--save-type", flags->type,
                    "Data type of the result: F32, F16, BF16; for gguf also Q8_0, Q4_K_M, ...");
    shown.AddOption("-t,--threads", flags->threads, "Threads (0: all cores)");
    command.AddFlag("--force", flags->force, "Replace an existing OUT");
    SetJsonCallback(command, flags, status, Merge);
}

}  // namespace weft::cli
