#include "train/estimate.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "model/hyper.h"
#include "model_files/hf/json.h"
#include "program/arena.h"
#include "program/timeline.h"
#include "train/parallel/pipeline.h"

namespace weft::train {
namespace {

using nlohmann::json;
using program::OpKind;

constexpr int64_t kMostMicroBatch = 4096;
constexpr int kMostRanks = 1 << 20;
constexpr double kMostBytes = 0x1p62;  // (more than any memory; sums of two stay countable)

// ---- Reading ------------------------------------------------------------------------------------

class MachinesReader {
  public:
    MachinesReader(const std::string& where) : where_(where) {}

    Result<Machines> Read(const json& object) {
        Machines machines;
        TakeCount(object, "hosts", machines.hosts);
        TakeCount(object, "ranks_per_host", machines.ranks_per_host);
        Take(object, "", "flops_per_s", kRates, machines.flops_per_s);
        Take(object, "", "memory_bytes_per_s", kRates, machines.memory_bytes_per_s);
        double memory = 1;
        Take(object, "", "memory_bytes", kSizes, memory);
        machines.memory_bytes = static_cast<uint64_t>(memory);
        if (machines.ranks_per_host > 1) TakeWire(object, "within", machines.within);
        if (machines.hosts > 1) TakeWire(object, "between", machines.between);
        if (error_.empty() && int64_t{machines.hosts} * machines.ranks_per_host > kMostRanks) {
            error_ = fmt::format("more than {} ranks", kMostRanks);
        }
        if (error_.empty()) return machines;
        return MakeError(ErrorCode::kUsage, "{}: {}", where_, error_);
    }

  private:
    // What is far beyond any machine would be no more than infinities in the estimate.
    struct Bounds {
        double least, most;
    };
    static constexpr Bounds kRates{1, 1e24}, kSizes{1, 1e18}, kSeconds{0, 3600};

    static const json* Number(const json& object, const char* key) {
        const auto found = object.find(key);  // (the end of what is no object)
        return found != object.end() && found->is_number() ? &*found : nullptr;
    }
    void Take(const json& object, const char* in, const char* key, Bounds bounds, double& number) {
        const json* value = Number(object, key);
        const double got = value == nullptr ? -1 : value->get<double>();
        if (got >= bounds.least && got <= bounds.most) {
            number = got;
        } else if (error_.empty()) {
            error_ = fmt::format("{}{}: expected a number from {:g} to {:g}", in, key, bounds.least,
                                 bounds.most);
        }
    }
    void TakeCount(const json& object, const char* key, int& count) {
        const json* value = Number(object, key);
        const double got = value == nullptr ? 0 : value->get<double>();
        if (got >= 1 && got <= kMostRanks && got == std::floor(got)) {
            count = static_cast<int>(got);
        } else if (error_.empty()) {
            error_ = fmt::format("{}: expected a whole number from 1 to {}", key, kMostRanks);
        }
    }
    void TakeWire(const json& object, const char* key, Wire& wire) {
        const json inner = object.value(key, json::object());
        const std::string in = std::string(key) + ".";
        Take(inner, in.c_str(), "bytes_per_s", kRates, wire.bytes_per_s);
        if (!inner.is_object()) return;
        if (inner.contains("latency_s")) {
            Take(inner, in.c_str(), "latency_s", kSeconds, wire.latency_s);
        }
        if (!inner.contains("overlaps")) return;
        if (inner.at("overlaps").is_boolean()) {
            wire.overlaps = inner.at("overlaps").get<bool>();
        } else if (error_.empty()) {
            error_ = in + "overlaps: expected true or false";
        }
    }

    const std::string& where_;
    std::string error_;
};

// ---- Wires --------------------------------------------------------------------------------------

// A group of ranks, and what a collective of it takes: by rings, which cross from host to host as
// often as there are hosts, over all of a host's links together.
struct Group {
    int ranks = 1, hosts = 1;
    double bytes_per_s = 0, latency_s = 0;
    bool overlaps = true;

    // rounds: 1 for gathering or scattering, 2 for both.
    double Seconds(int64_t bytes, int rounds) const {
        if (ranks == 1) return 0;
        const double n = ranks;
        return rounds *
               ((n - 1) / n * static_cast<double>(bytes) / bytes_per_s + (n - 1) * latency_s);
    }
};

Group GroupOf(const Machines& machines, const std::vector<int>& ranks) {
    std::set<int> hosts;
    for (const int rank : ranks) hosts.insert(rank / machines.ranks_per_host);
    Group group;
    group.ranks = static_cast<int>(ranks.size());
    group.hosts = static_cast<int>(hosts.size());
    const Wire &within = machines.within, &between = machines.between;
    if (group.hosts == 1) {
        group.bytes_per_s = within.bytes_per_s;
        group.latency_s = within.latency_s;
        group.overlaps = within.overlaps;
        return group;
    }
    // As many groups as lie side by side on a host share its links; a ring enters a host once.
    const double rings =
        std::max(1.0, static_cast<double>(machines.ranks_per_host) * group.hosts / group.ranks);
    group.bytes_per_s = between.bytes_per_s / rings;
    if (group.ranks > group.hosts) {
        group.bytes_per_s = std::min(group.bytes_per_s, within.bytes_per_s);
    }
    group.latency_s = std::max(between.latency_s, within.latency_s);
    group.overlaps = between.overlaps;
    return group;
}

// ---- A stage ------------------------------------------------------------------------------------

class Estimator {
  public:
    Estimator(const TrainerOptions& options, const model_files::ModelSource& source,
              const Machines& machines)
        : options_(options), source_(source), machines_(machines) {}

    Status Prepare() {
        WEFT_ASSIGN(hyper_, model::ReadHyper(source_));
        const LayoutWords words = LayoutWordsOf(options_);
        WEFT_ASSIGN(const TrainLayout first, MakeTrainLayout(machines_.ranks(), 0, words));
        for (int stage = 0; stage < first.pp(); ++stage) {
            WEFT_ASSIGN(const TrainLayout layout,
                        MakeTrainLayout(machines_.ranks(), first.RankOf(stage, 0, 0), words));
            WEFT_ASSIGN(const std::vector<model::Shard> shards, ShardsOf(layout, hyper_, source_));
            const Group data = GroupOf(machines_, layout.DataGroup());
            const bool overlap =
                options_.zero >= 2 && layout.dp > 1 && options_.overlap != "off" && data.overlaps;
            WEFT_ASSIGN(const GraphOptions graph,
                        GraphOptionsOf(options_, layout, hyper_, overlap));
            WEFT_ASSIGN(TrainingGraph built, BuildTrainingGraph(hyper_, shards, source_, graph));
            stages_.push_back({layout, std::move(built), data, overlap});
        }
        return {};
    }

    int replicas() const { return stages_[0].layout.dp; }

    bool Fits(int64_t micro_batch, double bytes) const { return Bytes(micro_batch) <= bytes; }

    // The most sequences of a pass that fit; 0: none.
    int64_t MostThatFits(double bytes) const {
        int64_t fits = 0, beyond = kMostMicroBatch + 1;
        // Work grows with the rows, nearly in proportion.
        const double one = Bytes(1), slope = std::max(Bytes(2) - one, 1.0);
        int64_t next =
            1 + static_cast<int64_t>(std::clamp((bytes - one) / slope, 0.0, kMostMicroBatch - 1.0));
        while (beyond - fits > 1) {
            (Fits(next, bytes) ? fits : beyond) = next;
            next = fits == next ? fits + 1 : beyond - 1;
            if (next <= fits || next >= beyond) next = (fits + beyond) / 2;
        }
        return fits;
    }

    std::vector<StageEstimate> Stages(int64_t micro_batch) const {
        std::vector<StageEstimate> all;
        double longest = 0;
        for (const Stage& stage : stages_) {
            all.push_back(Passes(stage, micro_batch));
            AddMemory(stage, micro_batch, all.back());
            longest = std::max(longest, all.back().compute_s + all.back().waited_s);
        }
        // 1F1B: a stage waits for the first batch to reach it, through one chunk of each stage
        // before it, and for slower stages.
        const double passes = static_cast<double>(options_.accumulation);
        const double fill = (static_cast<double>(all.size()) - 1) / options_.virtual_stages;
        const double whole = longest * (passes + fill) / passes;
        for (size_t s = 0; s < all.size(); ++s) {
            all[s].idle_s = whole - (all[s].compute_s + all[s].waited_s);
            AddUpdate(stages_[s], all[s]);
            all[s].update_s = all[s].compute_s + all[s].waited_s + all[s].idle_s;
        }
        return all;
    }

    double Flops(int64_t micro_batch) const {
        double flops = 0;
        for (const Stage& stage : stages_) {
            const auto costs = CostsOf(stage, micro_batch);
            flops += program::Total(costs).flops * stage.layout.tp();
        }
        return flops * static_cast<double>(options_.accumulation) * replicas();
    }

  private:
    // Of the rank that needs most.
    double Bytes(int64_t micro_batch) const {
        uint64_t most = 0;
        for (const Stage& stage : stages_) {
            StageEstimate estimate;
            AddMemory(stage, micro_batch, estimate);
            most = std::max(most, estimate.state_bytes + estimate.work_bytes);
        }
        return static_cast<double>(most);
    }

    struct Stage {
        TrainLayout layout;
        TrainingGraph graph;
        Group data;
        bool overlap = false;
    };

    const program::Program& ListOf(const Stage& stage) const { return stage.graph.program.program; }

    // Of several sequences, each attending to itself alone.
    std::vector<program::OpCost> CostsOf(const Stage& stage, int64_t micro_batch) const {
        const program::Program& list = ListOf(stage);
        const int64_t rows = micro_batch * options_.sequence;
        std::vector<program::OpCost> costs = program::Cost(list, rows, rows, 0);
        for (size_t i = 0; i < costs.size(); ++i) {
            const OpKind kind = list.ops[i].kind();
            if (kind != OpKind::kAttention && kind != OpKind::kAttentionGrad) continue;
            // (Each has a cost for every pair of rows: rows (rows + 1) / 2 of one sequence.)
            costs[i].flops *=
                static_cast<double>(options_.sequence + 1) / static_cast<double>(rows + 1);
        }
        return costs;
    }

    double WireSeconds(const Stage& stage, const program::Op& op, int64_t bytes) const {
        switch (op.kind()) {
            case OpKind::kGatherShares:
            case OpKind::kReduceShares: return stage.data.Seconds(bytes, 1);
            case OpKind::kAllReduce:
                return GroupOf(machines_, stage.layout.TensorGroup()).Seconds(bytes, 2);
            case OpKind::kAllGather:
            case OpKind::kGatherRows:
            case OpKind::kReduceScatterRows:
                return GroupOf(machines_, stage.layout.TensorGroup()).Seconds(bytes, 1);
            case OpKind::kSend: return 0;  // on its own thread
            case OpKind::kRecv: {
                const int own = stage.layout.rank / machines_.ranks_per_host;
                const int peer = stage.layout.RankOfShard(op.as<program::Recv>().peer) /
                                 machines_.ranks_per_host;
                const Wire& wire = own == peer ? machines_.within : machines_.between;
                return static_cast<double>(bytes) / wire.bytes_per_s + wire.latency_s;
            }
            default: return 0;
        }
    }

    StageEstimate Passes(const Stage& stage, int64_t micro_batch) const {
        program::MachineRates rates;
        rates.flops_per_s = machines_.flops_per_s;
        rates.memory_bytes_per_s = machines_.memory_bytes_per_s;
        rates.overlap = stage.overlap;
        rates.wire = [&](const program::Op& op, int64_t bytes) {
            return WireSeconds(stage, op, bytes);
        };
        const program::Timeline line =
            program::WalkTimeline(ListOf(stage), CostsOf(stage, micro_batch), rates);
        const double passes = static_cast<double>(options_.accumulation);
        StageEstimate estimate;
        estimate.first_rank = stage.layout.rank;
        estimate.compute_s = passes * line.compute;
        estimate.wire_s = passes * line.wire;
        estimate.waited_s = passes * line.waited();
        return estimate;
    }

    // The optimizer's part: it reads gradients, weights and what it keeps, and writes all but
    // gradients; and what is summed or brought to everybody once an update.
    void AddUpdate(const Stage& stage, StageEstimate& estimate) const {
        double touched = 0;
        const double kept = KeptBytes(options_.update);
        double wire = 0;
        for (const program::Unit& unit : stage.graph.units) {
            const int64_t copies = RowBytes(unit.dtype, 1) + RowBytes(unit.gradient_dtype, 1);
            touched += static_cast<double>(unit.own_count) *
                       (2 * (4 + kept) + static_cast<double>(copies));
            const int64_t bytes = RowBytes(unit.dtype, unit.elements);
            if (unit.whole || options_.zero == 0) {
                wire += stage.data.Seconds(RowBytes(unit.gradient_dtype, unit.elements), 2);
            } else if (options_.zero == 1) {
                wire += stage.data.Seconds(RowBytes(unit.gradient_dtype, unit.elements), 1);
                wire += stage.data.Seconds(bytes, 1);
            } else if (options_.zero == 2) {
                wire += stage.data.Seconds(bytes, 1);
            }
        }
        estimate.compute_s += touched / machines_.memory_bytes_per_s;
        estimate.wire_s += wire;
        estimate.waited_s += wire;
    }

    void AddMemory(const Stage& stage, int64_t micro_batch, StageEstimate& estimate) const {
        const program::Program& list = ListOf(stage);
        const int64_t rows = micro_batch * options_.sequence;
        for (const program::Value& value : list.values) {
            const bool state = value.storage == program::Storage::kWeight ||
                               value.storage == program::Storage::kGradient;
            if (!state) continue;
            estimate.state_bytes +=
                static_cast<uint64_t>(RowBytes(value.dtype, value.shape.Elements(0, 0)));
        }
        for (const program::Unit& unit : stage.graph.units) {
            const double bytes = KeptBytes(options_.update) + (unit.dtype == DType::kF32 ? 0 : 4);
            estimate.state_bytes +=
                static_cast<uint64_t>(static_cast<double>(unit.own_count) * bytes);
        }
        const int slots = SlotsOf(stage.layout.place());
        const program::TrainingArenaPlan plan =
            program::PlanTrainingArena(stage.graph.program, rows, rows, {slots > 1, stage.overlap});
        const double work = static_cast<double>(plan.kept.size_bytes) * slots +
                            static_cast<double>(plan.brief.size_bytes);
        estimate.work_bytes = static_cast<uint64_t>(std::min(work, kMostBytes));
    }

    const TrainerOptions& options_;
    const model_files::ModelSource& source_;
    const Machines& machines_;
    model::Hyper hyper_;
    std::vector<Stage> stages_;
};

}  // namespace

Result<Machines> ReadMachines(const std::string& text, const std::string& where) {
    const auto object = model_files::hf::ParseJson(text, where);
    if (!object.ok() || !object->is_object()) {
        return MakeError(ErrorCode::kUsage, "{}: expected a JSON object", where);
    }
    return MachinesReader(where).Read(*object);
}

namespace {

// As a Trainer chooses: the first that fits, or else the last.
Result<TrainEstimate> EstimateWithin(TrainerOptions options, const model_files::ModelSource& source,
                                     const Machines& machines, double fill) {
    for (const char* way : {"none", "selective"}) {
        options.recompute = way;
        auto estimate = EstimateTraining(options, source, machines, fill);
        const bool full =
            estimate.ok() ? !estimate->fits : estimate.error().code == ErrorCode::kOutOfMemory;
        if (!full) return estimate;
    }
    options.recompute = "full";
    return EstimateTraining(options, source, machines, fill);
}

}  // namespace

Result<TrainEstimate> EstimateTraining(const TrainerOptions& options,
                                       const model_files::ModelSource& source,
                                       const Machines& machines, double fill) {
    WEFT_TRY(CheckTurns(options));
    if (options.recompute == "auto") return EstimateWithin(options, source, machines, fill);
    Estimator estimator(options, source, machines);
    WEFT_TRY(estimator.Prepare());
    const double bytes = fill * static_cast<double>(machines.memory_bytes);
    TrainEstimate estimate;
    estimate.micro_batch = options.micro_batch;
    estimate.recompute = options.recompute;
    if (options.micro_batch == 0) {
        const int64_t fits = estimator.MostThatFits(bytes);
        if (fits == 0) {
            return MakeError(ErrorCode::kOutOfMemory,
                             "not one sequence of {} tokens fits: use --recompute auto, --zero 3, "
                             "more ranks, or a smaller --seq-len",
                             options.sequence);
        }
        estimate.micro_batch = fits;
    }
    estimate.stages = estimator.Stages(estimate.micro_batch);
    estimate.fits =
        estimator.Fits(estimate.micro_batch, static_cast<double>(machines.memory_bytes));
    estimate.sequences = estimate.micro_batch * options.accumulation * estimator.replicas();
    estimate.flops = estimator.Flops(estimate.micro_batch);
    for (const StageEstimate& stage : estimate.stages) {
        estimate.update_s = std::max(estimate.update_s, stage.update_s);
    }
    return estimate;
}

}  // namespace weft::train
