#include "plan/train_predict.h"

#include <algorithm>
#include <cmath>

#include "plan/train_beside.h"
#include "plan/train_schedule.h"
#include "train/parallel/pipeline.h"
#include "train/trainer.h"

namespace weft::plan {
namespace {

using program::Recompute;

constexpr double kUnitElements = 1 << 24;  // Weft's units of weights (program/zero.h)
constexpr int64_t kMostMicroBatch = 4096;
// Standard deviation of a rank's time, as a share of an update. Guessed.
constexpr double kJitter = 0.01;
// Error of the cost model itself, beyond the errors of the figures.
constexpr double kTrainModelSpread = 0.08;

// Bytes per element of a matrix, in memory and on the wire.
struct ElementBytes {
    double weight = 0, gradient = 0, master = 0;  // master: with the optimizer's state
    double gathered = 0, summed = 0;
    double vector = 0;  // per element of a vector, all together
};

// A stage's parts, on the slowest of its tensor ranks.
struct ChunkUse {
    TrainSeconds forward, backward;
    double kept = 0, brief = 0;
    double brief_last = 0;  // of the ops after the layers
    double forward_flops = 0;
    TrainedElements elements;
    double unit = 0;  // elements of a unit, which is whole for a while
};

class TrainPredictor {
  public:
    TrainPredictor(TrainWalk& walk, const TrainLinks& links, const TrainCut& cut)
        : walk_(walk), links_(links), cut_(cut) {}

    Status Prepare() {
        WEFT_TRY(Check());
        place_.device = links_.device();
        if (walk_.job().dtype == DType::kF32) {
            place_.device.products *= kSingleShare;
            place_.device.attention *= kSingleShare;
        }
        const Machine& machine = links_.cluster().hosts[0];
        place_.rates = MeasuredTraining(machine, walk_.job().dtype);
        if (machine.measured) place_.collectives.measured = &*machine.measured;
        place_.tensor = links_.NeighboursOf(cut_.tp);
        place_.sequence = walk_.job().sequence;
        place_.micro_batch = cut_.micro_batch;
        data_ = links_.GroupOf(0, cut_.dp, cut_.tp);
        // A GPU's transfers overlap with its ops; a processor's overlap only between hosts.
        beside_ = data_.hosts > 1 || place_.device.op_s > 0;
        train::TrainerOptions options;
        options.dtype = walk_.job().dtype;
        options.grad_dtype = walk_.job().grad_dtype;
        options.accumulation = cut_.accumulation;
        const DType gradients = train::GradientTypeOf(options, cut_.dp);
        SetBytes(gradients);
        WEFT_ASSIGN(parts_, walk_.PartsOf({cut_.tp, cut_.ep, cut_.sequence_parallel, cut_.recompute,
                                           gradients}));
        WEFT_ASSIGN(spans_, walk_.LayersOf(cut_.pp * cut_.virtual_stages));
        TimeParts();
        return {};
    }

    std::vector<StageMemory> Memory() const {
        std::vector<StageMemory> all;
        for (int stage = 0; stage < cut_.pp; ++stage) all.push_back(MemoryOf(stage));
        return all;
    }

    TrainBound Bound() const {
        TrainBound bound;
        for (int stage = 0; stage < cut_.pp; ++stage) {
            TrainSeconds own;
            for (int chunk = 0; chunk < cut_.virtual_stages; ++chunk) {
                const ChunkUse use = UseOfChunk(stage, chunk);
                own += use.forward;
                own += use.backward;
            }
            const double seconds = own.total() * static_cast<double>(cut_.accumulation);
            bound.update_s = std::max(bound.update_s, seconds);
            bound.worst = std::max(bound.worst, MemoryOf(stage).total());
        }
        return bound;
    }

    TrainPrediction Predict() {
        TrainPrediction out;
        out.cut = cut_;
        out.memory = Memory();
        out.room = place_.device.room;
        out.hosts = links_.HostOf(cut_.ranks() - 1) + 1;
        double forward_flops = 0;
        out.parts = Update(forward_flops);
        if (cut_.ranks() > 1) {
            // The largest of n normal values.
            const double most = std::sqrt(2 * std::log(static_cast<double>(cut_.ranks())));
            out.parts.stragglers = out.parts.total() * kJitter * most;
        }
        out.update_s = out.parts.total();
        // Frozen matrices have no gradients.
        const int passes = walk_.job().lora.on() ? 2 : 3;
        out.flops =
            passes * forward_flops * cut_.tp * cut_.dp * static_cast<double>(cut_.accumulation);
        const double tokens = static_cast<double>(cut_.sequences() * walk_.job().sequence);
        out.tokens_per_s = tokens / out.update_s;
        const double peak = links_.cluster().hosts[0].compute.value;
        out.share_of_peak = out.flops / out.update_s / (peak * cut_.ranks());
        out.spread = Spread(out.parts);
        return out;
    }

  private:
    Status Check() const {
        if (cut_.ranks() > links_.ranks()) {
            return MakeError(ErrorCode::kUsage, "{} takes {} ranks; {} has {}", cut_.Name(),
                             cut_.ranks(), links_.cluster().words, links_.ranks());
        }
        train::TrainerOptions options;
        options.pp = cut_.pp;
        options.virtual_stages = cut_.virtual_stages;
        options.accumulation = cut_.accumulation;
        WEFT_TRY(train::CheckTurns(options));
        if (cut_.virtual_stages > 1 && cut_.pp == 1) {
            return MakeError(ErrorCode::kUsage, "--virtual-stages {} needs --pp of at least 2",
                             cut_.virtual_stages);
        }
        if (cut_.ep > 0 && cut_.tp % cut_.ep != 0) {
            return MakeError(ErrorCode::kUsage, "--ep {} does not divide --tp {}", cut_.ep,
                             cut_.tp);
        }
        return {};
    }

    void SetBytes(DType gradients) {
        const TrainJob& job = walk_.job();
        const double kept = train::KeptBytes(job.update);
        bytes_.vector = 8 + kept;
        if (job.lora.on()) {
            bytes_ = {4, 4, kept, 4, 4, bytes_.vector};
        } else {
            const auto w = static_cast<double>(RowBytes(job.dtype, 1));
            const auto g = static_cast<double>(RowBytes(gradients, 1));
            bytes_ = {w, g, kept + (w < 4 ? 4 : 0), w, g, bytes_.vector};
        }
    }

    // ---- Parts ------------------------------------------------------------------------------

    struct RankUse {
        PartUse first, last;
        std::map<int, PartUse> layers;
    };

    // Sums over each distinct tensor rank.
    void TimeParts() {
        const auto use = [&](const TrainPart& part) {
            return UseOf(part, place_, beside_ && cut_.zero >= 2);
        };
        for (const RankParts& parts : *parts_) {
            RankUse rank{use(parts.first), use(parts.last), {}};
            for (const auto& [kind, part] : parts.layers) rank.layers[kind] = use(part);
            uses_.push_back(std::move(rank));
        }
    }

    ChunkUse UseOfChunk(int stage, int chunk) const {
        const int place = chunk * cut_.pp + stage;
        ChunkUse slowest;
        for (size_t r = 0; r < uses_.size(); ++r) {
            ChunkUse use = UseOfRank((*parts_)[r], uses_[r], place);
            const double own = use.forward.total() + use.backward.total();
            if (own > slowest.forward.total() + slowest.backward.total()) slowest = std::move(use);
        }
        return slowest;
    }

    ChunkUse UseOfRank(const RankParts& parts, const RankUse& uses, int place) const {
        ChunkUse all;
        std::vector<UnitSeconds> units;
        const model::Span span = spans_[static_cast<size_t>(place)];
        const bool last = place == cut_.pp * cut_.virtual_stages - 1;
        if (place == 0 && !parts.all_in_last) AddPart(parts.first, uses.first, all, units);
        const int64_t begin = span.begin + (parts.ends_have_layers && place == 0 ? 1 : 0);
        const int64_t end = span.end - (parts.ends_have_layers && last ? 1 : 0);
        for (int64_t layer = begin; layer < end; ++layer) {
            const int kind = walk_.model().kind_of_layer()[static_cast<size_t>(layer)];
            AddPart(parts.layers.at(kind), uses.layers.at(kind), all, units);
        }
        all.brief_last = all.brief;
        if (last) {
            AddPart(parts.last, uses.last, all, units);
            if (TiedHere() && !parts.all_in_last) {
                all.elements.matrices -= parts.last.elements.embedding;
                all.elements.frozen_bytes -= parts.last.elements.frozen_embedding_bytes;
            }
            all.brief_last = uses.last.brief;
        }
        all.forward.shares = WaitsForward(units, beside_, kContention);
        all.backward.shares = WaitsBackward(units, beside_, kContention);
        return all;
    }

    void AddPart(const TrainPart& part, const PartUse& use, ChunkUse& all,
                 std::vector<UnitSeconds>& units) const {
        all.forward += use.forward.all;
        all.backward += use.backward.all;
        all.forward_flops += use.forward.flops;
        all.kept += use.kept;
        all.brief = std::max(all.brief, use.brief);
        const TrainedElements& e = part.elements;
        all.elements.matrices += e.matrices;
        all.elements.vectors += e.vectors;
        all.elements.frozen_bytes += e.frozen_bytes;
        const double unit = std::min(e.matrices, std::max(e.largest, kUnitElements));
        all.unit = std::max(all.unit, unit);
        UnitSeconds seconds{use.forward.all.total(), use.backward.all.total(), 0, 0};
        if (cut_.zero >= 3) seconds.gather = Gather(e.matrices);
        if (cut_.zero >= 2) seconds.sum = Scatter(e.matrices);
        units.push_back(seconds);
    }

    // Over the replicas: gathers weights, reduces gradients.
    double Gather(double elements) const {
        return place_.collectives.Gather(data_, elements * bytes_.gathered);
    }
    double Scatter(double elements) const {
        return place_.collectives.ReduceScatter(data_, elements * bytes_.summed, bytes_.summed);
    }

    // The only stage has an embedding that is also the output matrix.
    bool TiedHere() const { return cut_.pp == 1 && walk_.model().hyper().tied; }

    // ---- Memory -----------------------------------------------------------------------------

    StageMemory MemoryOf(int stage) const {
        StageMemory memory;
        memory.first_rank = stage * cut_.dp * cut_.tp;
        double most_kept = 0, brief = 0, unit = 0;
        TrainedElements elements;
        for (int chunk = 0; chunk < cut_.virtual_stages; ++chunk) {
            const ChunkUse use = UseOfChunk(stage, chunk);
            elements.matrices += use.elements.matrices;
            elements.vectors += use.elements.vectors;
            elements.frozen_bytes += use.elements.frozen_bytes;
            most_kept = std::max(most_kept, use.kept);
            // (The loss ends before the layers' gradients begin; memory peaks at the layers.)
            brief = std::max({brief, use.brief, use.brief_last});
            unit = std::max(unit, use.unit);
        }
        const double n = cut_.dp, m = elements.matrices;
        const int64_t slots = train::SlotsOf({stage, cut_.pp, cut_.virtual_stages});
        memory.state = elements.frozen_bytes + elements.vectors * bytes_.vector +
                       m * bytes_.weight / (cut_.zero >= 3 ? n : 1) +
                       m * bytes_.gradient / (cut_.zero >= 2 ? n : 1) +
                       m * bytes_.master / (cut_.zero >= 1 ? n : 1);
        const double whole = beside_ ? 2 : 1;  // units at once
        double work = most_kept * static_cast<double>(slots) + brief;
        if (cut_.zero >= 3) work += whole * unit * bytes_.gathered;
        if (cut_.zero >= 2) work += whole * unit * bytes_.summed;
        memory.work = work;
        return memory;
    }

    // ---- An update --------------------------------------------------------------------------

    // Message to the next stage, for one micro-batch.
    double HopSeconds(int stage) const {
        if (cut_.pp == 1) return 0;
        const RankParts& parts = (*parts_)[0];
        const program::Program& list = parts.layers.begin()->second.list();
        const int64_t rows = place_.sequence * place_.micro_batch;
        const program::Value& x = list.value(list.ops[0].outputs[0]);
        const auto whole = static_cast<double>(RowBytes(x.dtype, x.shape.Elements(rows, rows)));
        const int each = cut_.dp * cut_.tp, next = (stage + 1) % cut_.pp;
        const coll::Tier tier = links_.Between(stage * each, next * each);
        const Measured* measured = place_.collectives.measured;
        const bool told = measured != nullptr && measured->hop;
        return coll::MessageSeconds(tier, whole) + (told ? measured->hop->value : 0);
    }

    TrainSeconds Update(double& forward_flops) const {
        std::vector<ChunkSeconds> seconds;
        std::vector<TrainSeconds> own(static_cast<size_t>(cut_.pp));
        std::vector<TrainedElements> elements(own.size());
        for (int stage = 0; stage < cut_.pp; ++stage) {
            const size_t s = static_cast<size_t>(stage);
            const double to_next = HopSeconds(stage);
            const double to_last = HopSeconds((stage + cut_.pp - 1) % cut_.pp);
            for (int chunk = 0; chunk < cut_.virtual_stages; ++chunk) {
                const ChunkUse use = UseOfChunk(stage, chunk);
                own[s] += use.forward;
                own[s] += use.backward;
                forward_flops += use.forward_flops;
                elements[s].matrices += use.elements.matrices;
                elements[s].vectors += use.elements.vectors;
                seconds.push_back({use.forward.total(), use.backward.total(), to_next, to_last});
            }
        }
        const PipelineWalk walk =
            WalkPipeline(cut_.pp, cut_.virtual_stages, seconds, cut_.accumulation);
        TrainSeconds slowest;
        for (size_t s = 0; s < own.size(); ++s) {
            TrainSeconds all = own[s] * static_cast<double>(cut_.accumulation);
            all.hops = std::max(0.0, walk.busy[s] - all.total());
            all.bubble = std::max(0.0, walk.end[s] - walk.busy[s]);
            AddTail(elements[s], s == 0 || s + 1 == own.size(), all);
            if (all.total() > slowest.total()) slowest = all;
        }
        return slowest;
    }

    // Adds the work after the last pass: summing gradients, the optimizer, gathering weights.
    void AddTail(const TrainedElements& e, bool end, TrainSeconds& all) const {
        const double n = cut_.dp;
        double sums = 0;
        if (cut_.zero == 0) {
            sums = place_.collectives.AllReduce(data_, e.matrices * bytes_.summed);
        } else if (cut_.zero == 1) {
            sums = Scatter(e.matrices);
        }
        if (cut_.zero == 1 || (cut_.zero == 2 && n > 1)) {
            sums += Gather(e.matrices);
        }
        sums += place_.collectives.AllReduce(data_, e.vectors * 4);
        if (end && cut_.pp > 1 && walk_.model().hyper().tied) {
            const double tied = (*parts_)[0].last.elements.embedding * bytes_.summed;
            const coll::Tier tier = links_.Between(0, (cut_.pp - 1) * cut_.dp * cut_.tp);
            sums += coll::MessageSeconds(tier, tied);
        }
        all.shares += sums;
        const double own = e.matrices / (cut_.zero >= 1 ? n : 1) + e.vectors;
        const double touched = own * TouchedBytes(bytes_.weight, bytes_.gradient, bytes_.master);
        const TrainingRates* rates = place_.rates;
        all.update += touched / (rates != nullptr ? rates->update.value : place_.device.memory);
        if (rates != nullptr) all.update += rates->step.value;
    }

    double Spread(const TrainSeconds& parts) const {
        const Machine& machine = links_.cluster().hosts[0];
        const Figure guess;
        const double products =
            machine.products ? machine.products->spread() : machine.compute.spread() + 0.2;
        const double attention = machine.attention ? machine.attention->spread() : guess.spread();
        const double wire = links_.cluster().wire.bandwidth.spread();
        const std::pair<double, double> terms[] = {
            {parts.products, products},
            {parts.attention, attention},
            {parts.memory + parts.update, machine.bandwidth.spread()},
            {parts.launch + parts.stragglers, guess.spread()},
            {parts.tensor + parts.shares + parts.hops, wire}};
        double squares = kTrainModelSpread * kTrainModelSpread;
        for (const auto& [seconds, spread] : terms) {
            const double share = seconds / parts.total() * spread;
            squares += share * share;
        }
        return std::sqrt(squares);
    }

    TrainWalk& walk_;
    const TrainLinks& links_;
    const TrainCut cut_;
    TrainPlace place_;
    coll::TierGroup data_;
    bool beside_ = false;
    ElementBytes bytes_;
    const std::vector<RankParts>* parts_ = nullptr;
    std::vector<RankUse> uses_;
    std::vector<model::Span> spans_;
};

}  // namespace

const char* RecomputeName(Recompute recompute) {
    switch (recompute) {
        case Recompute::kNone: return "none";
        case Recompute::kSelective: return "selective";
        case Recompute::kFull: return "full";
    }
    return "none";
}

std::string TrainCut::Name() const {
    std::string name = fmt::format("tp{}", tp);
    if (sequence_parallel) name += " sp";
    if (ep > 1) name += fmt::format(" ep{}", ep);
    if (pp > 1) name += fmt::format(" pp{}", pp);
    if (virtual_stages > 1) name += fmt::format("x{}", virtual_stages);
    if (dp > 1) name += fmt::format(" dp{} zero{}", dp, zero);
    return name;
}

const StageMemory& TrainPrediction::worst() const {
    return *std::ranges::max_element(memory, {}, &StageMemory::total);
}

std::pair<const char*, double> TrainPrediction::limit() const {
    const TrainSecondsRow* most = &TrainSecondsRows()[0];
    for (const TrainSecondsRow& row : TrainSecondsRows()) {
        if (parts.*row.seconds > parts.*(most->seconds)) most = &row;
    }
    return {most->name, parts.*(most->seconds) / parts.total()};
}

Result<TrainPrediction> PredictTraining(TrainWalk& walk, const TrainLinks& links,
                                        const TrainCut& cut) {
    TrainPredictor predictor(walk, links, cut);
    WEFT_TRY(predictor.Prepare());
    return predictor.Predict();
}

Result<TrainBound> BoundTraining(TrainWalk& walk, const TrainLinks& links, const TrainCut& cut) {
    TrainPredictor predictor(walk, links, cut);
    WEFT_TRY(predictor.Prepare());
    return predictor.Bound();
}

Result<int64_t> MostThatFits(TrainWalk& walk, const TrainLinks& links, TrainCut cut, double fill) {
    const double room = fill * links.device().room;
    const auto fits = [&](int64_t micro_batch) -> Result<bool> {
        cut.micro_batch = micro_batch;
        TrainPredictor predictor(walk, links, cut);
        WEFT_TRY(predictor.Prepare());
        const std::vector<StageMemory> memory = predictor.Memory();
        return std::ranges::all_of(memory,
                                   [&](const StageMemory& stage) { return stage.total() <= room; });
    };
    int64_t least = 0, most = 1;  // `least` fits; the search doubles `most` until it does not fit
    for (;; most *= 2) {
        WEFT_ASSIGN(const bool fit, fits(most));
        if (!fit) break;
        least = most;
        if (most >= kMostMicroBatch) return kMostMicroBatch;
    }
    while (most - least > 1) {
        const int64_t middle = (least + most) / 2;
        WEFT_ASSIGN(const bool fit, fits(middle));
        (fit ? least : most) = middle;
    }
    return least;
}

}  // namespace weft::plan
