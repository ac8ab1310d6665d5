#include "cli/plan/plan_train.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/plan/plan.h"
#include "cli/terminal/output.h"
#include "cluster/frame.h"
#include "plan/shapes.h"
#include "plan/weft_rates.h"
#include "train/data/open.h"
#include "train/trainer.h"

namespace weft::cli {
namespace {

constexpr size_t kMostTrainLayouts = 12;  // in the table

// Bytes of a model's weights in a training that only reads them.
double FrozenBytes(const model_files::ModelSource& source, DType dtype) {
    double bytes = 0;
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        const bool kept = Info(tensor.dtype).quantized;
        const DType type = kept ? tensor.dtype : tensor.rows > 1 ? dtype : DType::kF32;
        bytes += static_cast<double>(tensor.rows * RowBytes(type, tensor.cols));
    }
    return bytes;
}

// Refuses what `weft train --optimizer-dir` refuses.
Status CheckDrive(const PlanTrainFlags& flags, const plan::ClusterSpec& cluster) {
    const auto gpus = std::ranges::find_if_not(cluster.hosts, &plan::Machine::is_processor);
    if (flags.drive_gb_per_s <= 0 || gpus == cluster.hosts.end()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--optimizer-drive with {}: the state of the optimizer is in the memory of "
                     "its GPU. Leave out the flag",
                     gpus->word);
}

// judges: gets the reward models, to which `job` refers.
Status SetJob(const PlanTrainFlags& flags, std::vector<plan::OpenedShape>& judges,
              plan::TrainJob& job) {
    const char* const answers = flags.vectors           ? "--vectors"
                                : flags.completions > 0 ? "--completions"
                                                        : "";
    WEFT_TRY(train::CheckContext(flags.wishes.cp, answers, flags.sequence_parallel == "on"));
    // Training computes in --dtype, so the weight type matters only with adapters, which leave the
    // model's weights unchanged.
    const std::string type = plan::QuantizedTypeOf(flags.model);
    if (!type.empty() && !flags.lora.on()) {
        return MakeError(ErrorCode::kUsage,
                         "'{}': a training has weights of --dtype ({}), not of '{}'; leave the "
                         "type out, or train adapters with {}",
                         flags.model, flags.dtype, type, flags.train ? "--lora-rank" : "--lora");
    }
    const auto update = train::FindUpdate(flags.optim);
    if (!update) {
        return MakeError(ErrorCode::kUsage, "--optim {}: expected {}", flags.optim,
                         train::kUpdateNames);
    }
    job.dtype = *DTypeOfName(flags.dtype);
    job.grad_dtype = flags.grad_dtype;
    job.lora = flags.lora;
    job.completions = flags.completions;
    job.group = flags.group;
    job.completion = flags.completion;
    for (const std::string& model : flags.reward_models) {
        WEFT_ASSIGN(plan::OpenedShape judge, plan::OpenWalk(model));
        job.judge_bytes += FrozenBytes(judge.walk.source(), job.dtype);
        judges.push_back(std::move(judge));
    }
    for (const plan::OpenedShape& judge : judges) job.judges.push_back(&judge.walk);
    job.drive_bytes_per_s = flags.drive_gb_per_s * 1e9;
    job.vectors = flags.vectors;
    job.update.kind = *update;
    train::TrainerOptions trainer;
    trainer.dtype = job.dtype;
    trainer.grad_dtype = job.grad_dtype;
    trainer.lora = job.lora;
    trainer.update = job.update;
    trainer.sequence = std::max<int64_t>(flags.sequence, 1);
    const Status taken = train::CheckTrainer(trainer);
    if (taken.ok()) return {};
    return MakeError(taken.error().code, "weft train refuses this job: {}", taken.error().message);
}

plan::TrainSettings WishesOf(const PlanTrainFlags& flags) {
    plan::TrainSettings wishes = flags.wishes;
    if (flags.zero != "auto") wishes.zero = flags.zero[0] - '0';
    if (flags.sequence_parallel != "auto") {
        wishes.sequence_parallel = flags.sequence_parallel == "on";
    }
    using program::Recompute;
    for (const Recompute way : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        if (flags.recompute == plan::RecomputeName(way)) wishes.recompute = way;
    }
    return wishes;
}

Json TrainLayoutJson(const plan::TrainPrediction& p, const plan::ClusterSpec& cluster,
                     const PlanTrainFlags& flags) {
    const auto [limit, share] = p.parts.limit();
    Json json = {{"layout", p.cut.Name()},
                 {"tp", p.cut.tp},
                 {"pp", p.cut.pp},
                 {"cp", p.cut.cp},
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
    if (flags.epoch > 0) json["epoch_s"] = p.SecondsOf(flags.epoch);
    Json& stages = json["stages"] = Json::array();
    for (const plan::StageMemory& stage : p.memory) {
        stages.push_back({{"first_rank", stage.first_rank},
                          {"state_bytes", stage.state},
                          {"work_bytes", stage.work},
                          {"process_bytes", stage.process}});
    }
    if (!flags.explain) return json;
    Json& parts = json["update_parts_s"];
    for (const auto& row : plan::TrainSeconds::Rows()) {
        parts[row.name] = p.parts.*row.seconds;
    }
    parts["total"] = p.parts.total();
    return json;
}

void PrintTrainLayouts(const plan::TrainPlans& found, const plan::ClusterSpec& cluster) {
    const size_t shown = std::min(found.layouts.size(), kMostTrainLayouts);
    const std::span layouts = std::span(found.layouts).first(shown);
    // The hosts of each layout, if some layouts do not use all hosts.
    const bool some = std::ranges::any_of(layouts, [](const auto& p) { return !p.used.empty(); });
    std::vector<std::string> hosts = {some ? "machines" : ""};
    for (const plan::TrainPrediction& p : layouts) {
        hosts.push_back(some ? UsedHosts(p.used, p.hosts, cluster).HostWords() : "");
    }
    const size_t wide = std::ranges::max_element(hosts, {}, &std::string::size)->size();
    const auto host = [&](size_t i) {
        return some ? fmt::format("{:<{}} ", hosts[i], wide) : std::string();
    };
    PrintOut("{:<26} {}{:>5} {:>6} {:<9} {:>9} {:>18} {:>6}   {:<20} {}\n", "layout", host(0),
             "micro", "accum", "recompute", "update s", "tokens/s", "peak", "fits (worst rank)",
             "limited by");
    for (size_t i = 0; i < shown; ++i) {
        const plan::TrainPrediction& p = layouts[i];
        const auto [limit, share] = p.parts.limit();
        PrintOut("{:<26} {}{:>5} {:>6} {:<9} {:>9.3g} {:>18} {:>4.0f} %   {:<20} {} {:.0f} %{}\n",
                 p.cut.Name(), host(i + 1), p.cut.micro_batch, p.cut.accumulation,
                 plan::RecomputeName(p.cut.recompute), p.update_s,
                 RateText(p.tokens_per_s, p.tokens_per_s * p.spread, 0), p.share_of_peak * 100,
                 FitText(p.worst().total(), p.room, p.fits()), limit, share * 100,
                 i == 0 && p.fits() && shown > 1 ? "   <- fastest" : "");
    }
    if (!layouts[0].fits()) {
        PrintOut("No layout fits: the one that needs the least memory is first.\n");
    } else if (!layouts[0].is_roomy()) {
        PrintOut("Every layout that fits takes more than {:.0f} % of the memory and may run out.\n",
                 plan::kRoomyFill * 100);
    }
}

void PrintTrainParts(const plan::TrainPrediction& p) {
    PrintOut("\n{}: an update of {} sequences\n", p.cut.Name(), p.cut.sequences());
    for (const auto& row : plan::TrainSeconds::Rows()) {
        const double seconds = p.parts.*row.seconds;
        PrintOut("  {:<14} {:>12.4f} s {:>6.1f} %\n", row.name, seconds,
                 seconds / p.update_s * 100);
    }
    PrintOut("  {:<14} {:>12.4f} s\n", "total", p.update_s);
    for (const plan::StageMemory& stage : p.memory) {
        PrintOut("  from rank {:<5} state {:.2f} GB + work {:.2f} GB\n", stage.first_rank,
                 stage.state * 1e-9, (stage.work + stage.process) * 1e-9);
    }
}

// Returns a note that names the first machine on which training was not measured. "": training was
// measured on all machines.
std::string TrainingNote(const plan::ClusterSpec& cluster) {
    for (const plan::Machine& host : cluster.hosts) {
        if (MeasuredTraining(host, DType::kBF16) != nullptr) continue;
        if (MeasuredTraining(host, DType::kF32) != nullptr) continue;
        return fmt::format(
            "not measured with Weft, but computed: {} from {}", host.word,
            host.products ? "the shares of its limits that published training with other programs "
                            "reaches"
                          : plan::OriginOfRates(host));
    }
    return {};
}

// A note on layouts of more ranks than Weft runs; "": there are none.
std::string TooManyNote(int ranks) {
    if (std::cmp_less_equal(ranks, cluster::kMostRanks)) return {};
    return fmt::format("Weft runs at most {} ranks: layouts of more ranks are predictions only",
                       cluster::kMostRanks);
}

}  // namespace

plan::ClusterSpec UsedHosts(std::vector<int> used, int hosts, const plan::ClusterSpec& cluster) {
    const bool first_ones = used.empty();
    for (int host = 0; first_ones && host < hosts; ++host) used.push_back(host);
    return cluster.Part(used);
}

Status RunPlanTrain(PlanTrainFlags& flags) {
    plan::TrainJob job;
    std::vector<plan::OpenedShape> judges;
    WEFT_TRY(SetJob(flags, judges, job));
    WEFT_ASSIGN(const plan::Library library, plan::Library::Open());
    WEFT_ASSIGN(const plan::OpenedShape shape, plan::OpenWalk(flags.model));
    WEFT_TRY(train::SetSequence(shape.walk.hyper(), flags.sequence));
    if (flags.completion >= flags.sequence) {
        return MakeError(ErrorCode::kUsage,
                         "--max-completion-length {} with --seq-len {}: a sequence has the prompt, "
                         "too. Use a larger --seq-len",
                         flags.completion, flags.sequence);
    }
    job.sequence = flags.sequence;
    WEFT_ASSIGN(plan::TrainWalk walk, plan::TrainWalk::Make(shape.walk, job));
    WEFT_ASSIGN(plan::ClusterSpec cluster, library.ParseCluster(flags.machines));
    WEFT_TRY(CheckDrive(flags, cluster));
    cluster = cluster.WithVendorLinks();
    WEFT_ASSIGN(const plan::TrainPlans found,
                plan::SearchTrainingOn(walk, cluster, WishesOf(flags)));
    std::string note = TrainingNote(cluster);
    const std::string rollouts =
        flags.completions > 0 || !judges.empty()
            ? "the time of an update leaves out its completions and their rewards"
            : "";
    for (const std::string& more : {TooManyNote(cluster.ranks()), rollouts}) {
        if (!more.empty()) note += (note.empty() ? "" : "; ") + more;
    }
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
        PrintOut("an epoch of {} sequences: {}\n", flags.epoch,
                 SecondsText(best.SecondsOf(flags.epoch)));
    }
    if (flags.explain) PrintTrainParts(best);
    return {};
}

// A flag of training predictions. needed: as in AddPlanTrainFlags.
template <typename Value>
static Option AddTrainFlag(const Command& command, const Option* needed, const char* name,
                           Value& value, const char* help) {
    const Option option = command.AddOption(name, value, help);
    option.Group("Training");
    if (needed != nullptr) option.Needs(*needed);
    return option;
}

static void AddRolloutFlags(const Command& command, PlanTrainFlags& flags, const Option* needed) {
    const auto add = [&](const char* name, auto& value, const char* help) {
        return AddTrainFlag(command, needed, name, value, help);
    };
    const Option completions =
        add("--completions", flags.completions,
            "For --loss grpo: completions that a replica generates at once; counts their KV cache")
            .Range(1, 4096);
    add("--num-generations", flags.group, "For --loss grpo: completions of each prompt")
        .Range(2, 4096)
        .ShowDefault()
        .Needs(completions);
    add("--max-completion-length", flags.completion,
        "For --loss grpo: most tokens of a completion (default: half of --seq-len)")
        .Range(1, 1 << 20)
        .Needs(completions);
    add("--reward-model", flags.reward_models,
        "For --loss grpo: a reward model; counts its memory. May be repeated")
        .OneEach();
}

void AddPlanTrainFlags(const Command& command, PlanTrainFlags& flags, const Option* needed) {
    const auto add = [&](const char* name, auto& value, const char* help) {
        return AddTrainFlag(command, needed, name, value, help);
    };
    add("--seq-len", flags.sequence, "Sequence length in tokens")
        .Range(1, 1 << 20)
        .DefaultText("1024, at most the model's context");
    add("--dtype", flags.dtype, "Compute in bf16, f16 or f32")
        .OneOf({"bf16", "f16", "f32"})
        .ShowDefault();
    add("--grad-dtype", flags.grad_dtype,
        "Type of accumulated gradients: f32, as --dtype, or auto (f32 where passes x replicas > 8)")
        .OneOf({"auto", "f32", "bf16", "f16"})
        .ShowDefault();
    add("--optim", flags.optim, train::kUpdateNames).ShowDefault();
    add("--optimizer-drive", flags.drive_gb_per_s,
        "Optimizer state on a drive of each host (weft train --optimizer-dir) that reads and "
        "writes so many GB/s; processors only")
        .Range(0.01, 1e3);
    // (--lora of `weft plan` names adapters.)
    const Option lora = add(needed == nullptr ? "--lora" : "--lora-rank", flags.lora.rank,
                            "Train LoRA adapters of this rank only")
                            .Range(1, 1 << 12);
    add("--lora-targets", flags.lora.targets,
        "Matrices with adapters: all, attn, mlp, or module names, as q_proj,v_proj")
        .ShowDefault()
        .Needs(lora);
    AddRolloutFlags(command, flags, needed);
    const Option vectors = command.AddFlag(
        "--vectors", flags.vectors,
        "For --loss reward, classification or contrastive: no logits; a sequence is a text");
    vectors.Group("Training");
    if (needed != nullptr) vectors.Needs(*needed);
    add("--sequences", flags.epoch, "Sequences of an epoch").Range(int64_t{1}, int64_t{1} << 50);
    plan::TrainSettings& wishes = flags.wishes;
    constexpr int kMost = 1 << 17;
    add("--tp", wishes.tp, "Tensor-parallel ranks (default: searched)").Range(1, kMost);
    add("--pp", wishes.pp, "Pipeline stages (default: searched)").Range(1, kMost);
    add("--cp", wishes.cp, "Context-parallel ranks, which divide long sequences").Range(1, kMost);
    add("--dp", wishes.dp, "Data-parallel replicas (default: ranks / tp / pp / cp)")
        .Range(1, kMost);
    add("--ep", wishes.ep, "Expert-parallel groups of the tensor ranks").Range(1, kMost);
    add("--virtual-stages", wishes.virtual_stages,
        "Model chunks per pipeline stage (default: searched)")
        .Range(1, 1024);
    add("--zero", flags.zero, "ZeRO stage (auto: searched)")
        .OneOf({"auto", "0", "1", "2", "3"})
        .ShowDefault();
    add("--recompute", flags.recompute, "Activation recomputation (auto: searched)")
        .OneOf({"auto", "none", "selective", "full"})
        .ShowDefault();
    add("--sequence-parallel", flags.sequence_parallel,
        "Sequence parallelism of tensor ranks (auto: on without --cp; weft train needs the flag)")
        .OneOf({"auto", "on", "off"})
        .ShowDefault();
    add("--micro-batch", wishes.micro_batch, "Sequences of a micro-batch (default: searched)")
        .Range(1, 4096);
    add("--grad-accum", wishes.accumulation,
        "Micro-batches per update (default: from --global-batch, else 1, or 4 times --pp with "
        "stages)")
        .Range(1, 1 << 20);
    add("--global-batch", wishes.global_batch, "Sequences of an update on all replicas")
        .Range(int64_t{1}, int64_t{1} << 32);
}

void AddEstimate(const Command& train, int& status) {
    auto flags = std::make_shared<PlanTrainFlags>();
    const std::string examples =
        "Examples:\n"
        "  weft train estimate llama-3.1-70b --machines 8xh100 --seq-len 4096 --global-batch 1024\n"
        "  weft train estimate qwen3-8b:q4_k_m --machines strix-halo --lora 16 --explain\n\n"
        "'weft plan MODEL --train' is the same command.\n\n";
    const Command command = train.AddCommand(
        "estimate",
        "Predict speed, memory and the best layout of a training on machines that you "
        "describe",
        examples + kPlanWords);
    command.AddOption("MODEL", flags->model, kPlanModelHelp).Required();
    command.AddOption("--machines", flags->machines, kMachinesHelp).Required();
    command.AddFlag("--explain", flags->explain, "Show the parts of the best layout's time");
    AddJson(command, flags->json);
    AddPlanTrainFlags(command, *flags, nullptr);
    SetCallback(command, flags, flags->json, status, RunPlanTrain);
}

}  // namespace weft::cli
