// weft train estimate: what training would take on machines that are not here.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/file.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/train.h"
#include "model/shard.h"
#include "model_files/model_file.h"
#include "train/estimate.h"

namespace weft::cli {
namespace {

constexpr const char* kTrainEstimateFooter =
    "Examples:\n"
    "  weft train estimate synthetic:llama-3.1-70b --machines two.json --zero 3 --seq-len 512 \\\n"
    "      --sequences 100000\n"
    "  weft train estimate model.gguf --machines lab.json --tp 2 --micro-batch 4\n\n"
    "--machines is a file of JSON such as\n"
    "  {\"hosts\": 2, \"ranks_per_host\": 8, \"memory_bytes\": 192e9,\n"
    "   \"flops_per_s\": 3e14, \"memory_bytes_per_s\": 4e12,\n"
    "   \"within\": {\"bytes_per_s\": 3e11},\n"
    "   \"between\": {\"bytes_per_s\": 5e10, \"latency_s\": 2e-5, \"overlaps\": true}}\n"
    "with what one rank can do (within: of a rank; between: of all links of a host together).\n"
    "Its weights need not be here: synthetic:NAME has the shapes of known models.";

struct EstimateFlags {
    train::TrainerOptions trainer;
    std::string machines, dtype = "bf16", split;
    int64_t sequences = 0;  // of an epoch
    bool json = false;
};

double Gigabytes(uint64_t bytes) {
    return static_cast<double>(bytes) * 1e-9;
}

Json JsonOf(const train::TrainEstimate& estimate, const EstimateFlags& flags, double epoch_s) {
    Json stages = Json::array();
    for (const train::StageEstimate& stage : estimate.stages) {
        stages.push_back({{"first_rank", stage.first_rank},
                          {"state_bytes", stage.state_bytes},
                          {"work_bytes", stage.work_bytes},
                          {"compute_s", stage.compute_s},
                          {"wire_s", stage.wire_s},
                          {"waited_s", stage.waited_s},
                          {"idle_s", stage.idle_s},
                          {"update_s", stage.update_s}});
    }
    Json json = {{"micro_batch", estimate.micro_batch},
                 {"sequences", estimate.sequences},
                 {"flops", estimate.flops},
                 {"fits", estimate.fits},
                 {"update_s", estimate.update_s},
                 {"tokens_per_s", estimate.tokens_per_s(flags.trainer.sequence)},
                 {"recompute", estimate.recompute},
                 {"stages", std::move(stages)}};
    if (epoch_s > 0) json["epoch_s"] = epoch_s;
    return json;
}

void PrintTable(const train::TrainEstimate& estimate, const EstimateFlags& flags, double epoch_s) {
    PrintOut("stage  rank  state GB  work GB  compute s   wire s  waited s   idle s  update s\n");
    for (size_t s = 0; s < estimate.stages.size(); ++s) {
        const train::StageEstimate& stage = estimate.stages[s];
        PrintOut("{:5} {:5} {:9.1f} {:8.1f} {:10.3f} {:8.3f} {:9.3f} {:8.3f} {:9.3f}\n", s,
                 stage.first_rank, Gigabytes(stage.state_bytes), Gigabytes(stage.work_bytes),
                 stage.compute_s, stage.wire_s, stage.waited_s, stage.idle_s, stage.update_s);
    }
    PrintOut(
        "an update: {} sequences of {} tokens (micro-batch {}, recompute {}), {:.3g} FLOPs, "
        "{:.3f} s, {:.0f} tokens/s\n",
        estimate.sequences, flags.trainer.sequence, estimate.micro_batch, estimate.recompute,
        estimate.flops, estimate.update_s, estimate.tokens_per_s(flags.trainer.sequence));
    if (epoch_s > 0) PrintOut("an epoch of {} sequences: {:.0f} s\n", flags.sequences, epoch_s);
    if (!estimate.fits) PrintOut("It does not fit into the memory of a rank.\n");
}

Status Estimate(EstimateFlags& flags) {
    flags.trainer.dtype = *DTypeOfName(flags.dtype);
    if (!flags.split.empty()) {
        WEFT_ASSIGN(flags.trainer.split, model::ParseShares(flags.split));
    }
    WEFT_ASSIGN(const std::string text, ReadTextFile(flags.machines));
    WEFT_ASSIGN(const train::Machines machines, train::ReadMachines(text, flags.machines));
    WEFT_ASSIGN(const auto source, model_files::OpenModel(flags.trainer.model));
    WEFT_ASSIGN(const train::TrainEstimate estimate,
                train::EstimateTraining(flags.trainer, *source, machines));
    const double updates =
        std::ceil(static_cast<double>(flags.sequences) / static_cast<double>(estimate.sequences));
    const double epoch_s = updates * estimate.update_s;
    if (flags.json) {
        PrintJson(JsonOf(estimate, flags, epoch_s));
    } else {
        PrintTable(estimate, flags, epoch_s);
    }
    return {};
}

void AddFlags(const Command& command, EstimateFlags& flags) {
    train::TrainerOptions& trainer = flags.trainer;
    command.AddOption("MODEL", trainer.model, "A model, or synthetic:NAME").Required();
    command.AddOption("--machines", flags.machines, "What there would be (see below)").Required();
    command.AddOption("--seq-len", trainer.sequence, "Tokens of a sequence")
        .Range(1, 1 << 20)
        .ShowDefault();
    trainer.micro_batch = 0;
    command
        .AddOption("--micro-batch", trainer.micro_batch,
                   "Sequences of a pass (0: as many as fit into nine tenths of the memory)")
        .Range(0, 4096)
        .ShowDefault();
    command.AddOption("--grad-accum", trainer.accumulation, "Passes of an update")
        .Range(1, 1 << 20)
        .ShowDefault();
    command.AddOption("--sequences", flags.sequences, "Sequences of an epoch")
        .Range(int64_t{1}, int64_t{1} << 50);
    command.AddOption("--dtype", flags.dtype, "bf16, f16 or f32")
        .OneOf({"bf16", "f16", "f32"})
        .ShowDefault();
    command
        .AddOption("--grad-dtype", trainer.grad_dtype,
                   "What gradients are added up in: f32, as --dtype, or auto (f32 where passes x "
                   "replicas > 8)")
        .OneOf({"auto", "f32", "bf16", "f16"})
        .ShowDefault();
    command.AddOption("--zero", trainer.zero, "ZeRO stage").Range(0, 3).ShowDefault();
    command.AddOption("--tp", trainer.tp, "Ranks that share each layer (default: 1)");
    command.AddOption("--pp", trainer.pp, "Pipeline stages (default: 1)");
    command
        .AddOption("--virtual-stages", trainer.virtual_stages,
                   "With --pp: runs of layers that each stage has")
        .Range(1, 1024)
        .ShowDefault();
    command.AddOption("--dp", trainer.dp, "Replicas (default: ranks / tp / pp)");
    command.AddOption("--split", flags.split, "Uneven shares, as 3,2,1");
    command
        .AddOption("--recompute", trainer.recompute,
                   "none, selective, full, or auto: the first that fits")
        .OneOf({"auto", "none", "selective", "full"})
        .ShowDefault();
    command
        .AddOption("--overlap", trainer.overlap,
                   "Transfers of ZeRO 2 and 3 beside the arithmetic, where the wire allows it")
        .OneOf({"auto", "off"})
        .ShowDefault();
    AddJson(command, flags.json);
}

}  // namespace

void AddTrainEstimate(const Command& train, int& status) {
    auto flags = std::make_shared<EstimateFlags>();
    const Command command =
        train.AddCommand("estimate", "Time and memory of training on machines that are not here");
    command.Footer(kTrainEstimateFooter);
    AddFlags(command, *flags);
    SetCallback(command, flags, flags->json, status, [](EstimateFlags& f) { return Estimate(f); });
}

}  // namespace weft::cli
