#include "cli/plan_train.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/duration.h"
#include "cli/output.h"
#include "cli/plan.h"
#include "plan/shapes.h"
#include "plan/train_backwards.h"
#include "train/trainer.h"

namespace weft::cli {
namespace {

constexpr size_t kMostTrainLayouts = 12;  // in the table

Status SetJob(const PlanTrainFlags& flags, plan::TrainJob& job) {
    job.sequence = flags.sequence;
    job.dtype = *DTypeOfName(flags.dtype);
    job.grad_dtype = flags.grad_dtype;
    job.lora.rank = flags.lora_rank;
    const auto update = train::FindUpdate(flags.optim);
    if (!update) {
        return MakeError(ErrorCode::kUsage, "--optim {}: expected {}", flags.optim,
                         train::kUpdateNames);
    }
    job.update.kind = *update;
    return {};
}

void SetWishes(const PlanTrainFlags& flags, plan::TrainWishes& wishes) {
    if (flags.zero != "auto") wishes.zero = flags.zero[0] - '0';
    if (flags.sequence_parallel != "auto") {
        wishes.sequence_parallel = flags.sequence_parallel == "on";
    }
    using program::Recompute;
    for (const Recompute way : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        if (flags.recompute == plan::RecomputeName(way)) wishes.recompute = way;
    }
}

Json PartsJson(const plan::TrainSeconds& parts) {
    Json json;
    for (const plan::TrainSecondsRow& row : plan::TrainSecondsRows()) {
        json[row.name] = parts.*row.seconds;
    }
    json["total"] = parts.total();
    return json;
}

Json TrainLayoutJson(const plan::TrainPrediction& p, const plan::ClusterSpec& cluster,
                     const PlanTrainFlags& flags) {
    const auto [limit, share] = p.limit();
    Json json = {{"layout", p.cut.Name()},
                 {"tp", p.cut.tp},
                 {"pp", p.cut.pp},
                 {"dp", p.cut.dp},
                 {"ep", std::max(p.cut.ep, 1)},
                 {"zero", p.cut.zero},
                 {"virtual_stages", p.cut.virtual_stages},
                 {"sequence_parallel", p.cut.sequence_parallel},
                 {"recompute", plan::RecomputeName(p.cut.recompute)},
                 {"micro_batch", p.cut.micro_batch},
                 {"grad_accum", p.cut.accumulation},
                 {"sequences", p.cut.sequences()},
                 {"ranks", p.cut.ranks()},
                 {"machines", p.hosts},
                 {"uses", UsedHosts(p.used, p.hosts, cluster).words},
                 {"update_s", p.update_s},
                 {"tokens_per_s", p.tokens_per_s},
                 {"tokens_per_s_rank", p.tokens_per_s / p.cut.ranks()},
                 {"tokens_per_s_spread", p.tokens_per_s * p.spread},
                 {"flops", p.flops},
                 {"flops_per_s_rank", p.flops / p.update_s / p.cut.ranks()},
                 {"share_of_peak", p.share_of_peak},
                 {"fits", p.fits()},
                 {"worst_rank", p.worst().first_rank},
                 {"worst_rank_bytes", p.worst().total()},
                 {"worst_rank_room_bytes", p.room},
                 {"limit", limit},
                 {"limit_share", share}};
    if (flags.epoch > 0) json["epoch_s"] = plan::TrainingSeconds(p, flags.epoch);
    Json memory = Json::array();
    for (const plan::StageMemory& stage : p.memory) {
        memory.push_back({{"first_rank", stage.first_rank},
                          {"state_bytes", stage.state},
                          {"work_bytes", stage.work}});
    }
    json["stages"] = std::move(memory);
    if (flags.explain) json["update_parts_s"] = PartsJson(p.parts);
    return json;
}

// The hosts of each layout, if some layouts do not use all hosts.
std::vector<std::string> HostColumn(const plan::TrainPlans& found, const plan::ClusterSpec& cluster,
                                    size_t shown) {
    const auto first = found.layouts.begin();
    const bool needed = std::any_of(first, first + static_cast<std::ptrdiff_t>(shown),
                                    [](const auto& p) { return !p.used.empty(); });
    if (!needed) return std::vector<std::string>(shown + 1);
    std::vector<std::string> column = {"machines"};
    for (size_t i = 0; i < shown; ++i) {
        const plan::TrainPrediction& p = found.layouts[i];
        column.push_back(UsedHosts(p.used, p.hosts, cluster).HostWords());
    }
    const size_t wide = std::ranges::max_element(column, {}, &std::string::size)->size();
    for (std::string& cell : column) cell = fmt::format("{:<{}} ", cell, wide);
    return column;
}

void PrintTrainLayouts(const plan::TrainPlans& found, const plan::ClusterSpec& cluster) {
    const size_t shown = std::min(found.layouts.size(), kMostTrainLayouts);
    const std::vector<std::string> hosts = HostColumn(found, cluster, shown);
    PrintOut("{:<26} {}{:>5} {:>6} {:<9} {:>9} {:>18} {:>6}   {:<20} {}\n", "layout", hosts[0],
             "micro", "accum", "recompute", "update s", "tokens/s", "peak", "fits (worst rank)",
             "limited by");
    for (size_t i = 0; i < shown; ++i) {
        const plan::TrainPrediction& p = found.layouts[i];
        const auto [limit, share] = p.limit();
        PrintOut("{:<26} {}{:>5} {:>6} {:<9} {:>9.3g} {:>18} {:>4.0f} %   {:<20} {} {:.0f} %{}\n",
                 p.cut.Name(), hosts[i + 1], p.cut.micro_batch, p.cut.accumulation,
                 plan::RecomputeName(p.cut.recompute), p.update_s,
                 fmt::format("{:.0f} ±{:.0f}", p.tokens_per_s, p.tokens_per_s * p.spread),
                 p.share_of_peak * 100, FitText(p.worst().total(), p.room, p.fits()), limit,
                 share * 100, i == 0 && p.fits() && shown > 1 ? "   <- fastest" : "");
    }
    if (!found.layouts[0].fits()) {
        PrintOut("It does not fit into the memory of a rank.\n");
    }
}

void PrintTrainParts(const plan::TrainPrediction& p) {
    PrintOut("\n{}: an update of {} sequences\n", p.cut.Name(), p.cut.sequences());
    for (const plan::TrainSecondsRow& row : plan::TrainSecondsRows()) {
        const double seconds = p.parts.*row.seconds;
        PrintOut("  {:<14} {:>12.4f} s {:>6.1f} %\n", row.name, seconds,
                 seconds / p.update_s * 100);
    }
    PrintOut("  {:<14} {:>12.4f} s\n", "total", p.update_s);
    for (const plan::StageMemory& stage : p.memory) {
        PrintOut("  from rank {:<5} state {:.2f} GB + work {:.2f} GB\n", stage.first_rank,
                 stage.state * 1e-9, stage.work * 1e-9);
    }
}

using OfTraining = std::function<void(const Option&)>;

void AddJobFlags(const Command& command, PlanTrainFlags& flags, const OfTraining& of_training) {
    of_training(command.AddOption("--seq-len", flags.sequence, "Sequence length in tokens")
                    .Range(1, 1 << 20)
                    .ShowDefault());
    of_training(command.AddOption("--dtype", flags.dtype, "Compute in bf16, f16 or f32")
                    .OneOf({"bf16", "f16", "f32"})
                    .ShowDefault());
    of_training(command
                    .AddOption("--grad-dtype", flags.grad_dtype,
                               "Type of accumulated gradients: f32, as --dtype, or auto (f32 "
                               "where passes x replicas > 8)")
                    .OneOf({"auto", "f32", "bf16", "f16"})
                    .ShowDefault());
    of_training(command.AddOption("--optim", flags.optim, "adamw, adam, sgd, adafactor or adam8bit")
                    .ShowDefault());
    of_training(
        command.AddOption("--lora-rank", flags.lora_rank, "Train LoRA adapters of this rank only")
            .Range(1, 1 << 12));
    of_training(command
                    .AddOption("--within", flags.within,
                               "List machines that train --sequences in this time, such as 48h")
                    .TypeName("TIME"));
    of_training(command.AddOption("--sequences", flags.epoch, "Sequences of an epoch")
                    .Range(int64_t{1}, int64_t{1} << 50));
}

void AddCutFlags(const Command& command, PlanTrainFlags& flags, const OfTraining& of_training) {
    plan::TrainWishes& wishes = flags.wishes;
    constexpr int kMost = 1 << 17;
    of_training(command.AddOption("--tp", wishes.tp, "Tensor-parallel ranks (default: searched)")
                    .Range(1, kMost));
    of_training(command.AddOption("--pp", wishes.pp, "Pipeline stages (default: searched)")
                    .Range(1, kMost));
    of_training(
        command.AddOption("--dp", wishes.dp, "Data-parallel replicas (default: ranks / tp / pp)")
            .Range(1, kMost));
    of_training(command.AddOption("--ep", wishes.ep, "Expert-parallel groups of the tensor ranks")
                    .Range(1, kMost));
    of_training(command
                    .AddOption("--virtual-stages", wishes.virtual_stages,
                               "Model chunks per pipeline stage (default: searched)")
                    .Range(1, 1024));
    of_training(command.AddOption("--zero", flags.zero, "ZeRO stage (auto: searched)")
                    .OneOf({"auto", "0", "1", "2", "3"})
                    .ShowDefault());
    of_training(
        command
            .AddOption("--recompute", flags.recompute, "Activation recomputation (auto: searched)")
            .OneOf({"auto", "none", "selective", "full"})
            .ShowDefault());
    of_training(
        command
            .AddOption("--sequence-parallel", flags.sequence_parallel,
                       "Sequence parallelism of tensor ranks (auto: on where --tp is searched)")
            .OneOf({"auto", "on", "off"})
            .ShowDefault());
    of_training(command
                    .AddOption("--micro-batch", wishes.micro_batch,
                               "Sequences of a micro-batch (default: searched)")
                    .Range(1, 4096));
    of_training(
        command
            .AddOption("--grad-accum", wishes.accumulation,
                       "Micro-batches per update (default: from --global-batch, else 1, or 4 "
                       "times --pp with stages)")
            .Range(1, 1 << 20));
    of_training(command
                    .AddOption("--global-batch", wishes.global_batch,
                               "Sequences of an update on all replicas")
                    .Range(int64_t{1}, int64_t{1} << 32));
}

Json TrainOffersJson(const std::vector<plan::TrainOffer>& offers) {
    Json json = Json::array();
    for (const plan::TrainOffer& offer : offers) {
        json.push_back({{"machines", offer.machines},
                        {"layout", offer.best.cut.Name()},
                        {"tokens_per_s", offer.best.tokens_per_s},
                        {"seconds", offer.seconds},
                        {"price", offer.price},
                        {"price_is_guessed", offer.guessed}});
    }
    return json;
}

// --within: machines that train --sequences in that time.
Status PrintTrainOffers(const PlanTrainFlags& flags, const plan::Library& library,
                        plan::TrainWalk& walk) {
    if (flags.epoch == 0) {
        return MakeError(ErrorCode::kUsage, "--within: --sequences says of how many");
    }
    if (flags.explain) {
        return MakeError(ErrorCode::kUsage,
                         "--within lists machines: --explain is of one plan. Ask again with "
                         "--machines alone");
    }
    plan::TrainWanted wanted;
    wanted.sequences = flags.epoch;
    if (flags.within.find_first_not_of("0123456789. ") == flags.within.npos) {
        return MakeError(ErrorCode::kUsage, "--within: {} of what? Such as 48h, or 30d",
                         flags.within);
    }
    WEFT_ASSIGN(wanted.within_s, ParseTime("--within", flags.within));
    if (!flags.budget.empty()) {
        WEFT_ASSIGN(wanted.budget, plan::ParseQuantity(flags.budget, plan::Unit::kPrice));
    }
    WEFT_ASSIGN(const plan::TrainOffers offers,
                plan::FindTrainingMachines(walk, library, flags.wishes, wanted, flags.machines));
    if (flags.json) {
        PrintJson(Json{{"model", flags.model},
                       {"enough", TrainOffersJson(offers.enough)},
                       {"nearest", TrainOffersJson(offers.nearest)}});
        return {};
    }
    const auto& shown = offers.enough.empty() ? offers.nearest : offers.enough;
    if (offers.enough.empty()) {
        const char* fastest = flags.budget.empty() ? "None does it. The fastest:"
                                                   : "None does it. The fastest within the budget:";
        PrintOut("{}\n",
                 shown.empty() ? "No machine with a price holds the job within that." : fastest);
    }
    if (shown.empty()) return {};
    PrintOut("{:<28} {:<26} {:>12} {:>9} {:>12}\n", "machines", "layout", "tokens/s", "hours",
             "price");
    for (size_t i = 0; i < std::min(shown.size(), kMostTrainLayouts); ++i) {
        const plan::TrainOffer& offer = shown[i];
        PrintOut("{:<28} {:<26} {:>12.0f} {:>9.1f} {:>12}\n", offer.machines, offer.best.cut.Name(),
                 offer.best.tokens_per_s, offer.seconds / 3600,
                 fmt::format("{}{:.0f}", offer.guessed ? "~" : "", offer.price));
    }
    return {};
}

// A note that training was measured only on CPUs.
std::string TrainingNote(const plan::ClusterSpec& cluster) {
    for (const plan::Machine& host : cluster.hosts) {
        if (MeasuredTraining(host, DType::kBF16) != nullptr) continue;
        if (MeasuredTraining(host, DType::kF32) != nullptr) continue;
        return fmt::format(
            "not measured: Weft's training on {} is estimated from the shares of a device's limits "
            "that Weft reaches elsewhere",
            host.word);
    }
    return {};
}

// Rejects a weight type, which has no effect on training with its own --dtype, except with
// adapters, which leave the model's weights unchanged.
Status CheckType(const PlanTrainFlags& flags) {
    const std::string type = plan::QuantizedTypeOf(flags.model);
    if (type.empty() || flags.lora_rank > 0) return {};
    return MakeError(ErrorCode::kUsage,
                     "'{}': a training has weights of --dtype ({}), not of '{}'; leave the type "
                     "out, or train adapters with --lora-rank",
                     flags.model, flags.dtype, type);
}

}  // namespace

plan::ClusterSpec UsedHosts(std::vector<int> used, int hosts, const plan::ClusterSpec& cluster) {
    const bool first_ones = used.empty();
    for (int host = 0; first_ones && host < hosts; ++host) used.push_back(host);
    return cluster.Part(used);
}

Status RunPlanTrain(PlanTrainFlags& flags) {
    WEFT_TRY(CheckType(flags));
    WEFT_ASSIGN(const plan::Library library, plan::Library::Open());
    plan::TrainJob job;
    WEFT_TRY(SetJob(flags, job));
    SetWishes(flags, flags.wishes);
    WEFT_ASSIGN(const plan::OpenedShape shape, plan::OpenWalk(flags.model));
    WEFT_ASSIGN(plan::TrainWalk walk, plan::TrainWalk::Make(shape.walk, job));
    if (!flags.within.empty()) return PrintTrainOffers(flags, library, walk);
    WEFT_ASSIGN(const plan::ClusterSpec cluster, library.ParseCluster(flags.machines));
    WEFT_ASSIGN(const plan::TrainPlans found, plan::SearchTrainingOn(walk, cluster, flags.wishes));
    const std::string note = TrainingNote(cluster);
    if (flags.json) {
        Json layouts = Json::array();
        for (const plan::TrainPrediction& p : found.layouts) {
            layouts.push_back(TrainLayoutJson(p, cluster, flags));
        }
        PrintJson(Json{{"model", flags.model},
                       {"machines", flags.machines},
                       {"sequence", flags.sequence},
                       {"note", note},
                       {"layouts", std::move(layouts)},
                       {"refused", found.refused},
                       {"tried", found.bounded}});
        return {};
    }
    PrintTrainLayouts(found, cluster);
    if (const std::string hosts = HostsText(cluster); !hosts.empty()) {
        PrintOut("machines: {}\n", hosts);
    }
    if (!note.empty()) PrintOut("note: {}\n", note);
    const plan::TrainPrediction& best = found.layouts[0];
    if (flags.epoch > 0) {
        PrintOut("an epoch of {} sequences: {:.0f} s\n", flags.epoch,
                 plan::TrainingSeconds(best, flags.epoch));
    }
    if (flags.explain) PrintTrainParts(best);
    return {};
}

void AddPlanTrainFlags(const Command& command, PlanTrainFlags& flags, const Option* needed) {
    const auto of_training = [needed](const Option& option) {
        option.Group("Training");
        if (needed != nullptr) option.Needs(*needed);
    };
    AddJobFlags(command, flags, of_training);
    AddCutFlags(command, flags, of_training);
}

}  // namespace weft::cli
