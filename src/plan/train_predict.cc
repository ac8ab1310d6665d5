#include "plan/train_predict.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cluster/worker/link_windows.h"
#include "engine/rank/rank_options.h"
#include "plan/train_schedule.h"
#include "train/parallel/pipeline.h"
#include "train/trainer.h"

namespace weft::plan {
namespace {

using program::Recompute;

// Rate of products of float32 operands, as a share of BF16's. Guessed.
constexpr double kSingleShare = 0.5;
// Share of arithmetic speed lost while transfers run, because device copies occupy compute units.
constexpr double kContention = 0.15;
// Standard deviation of a rank's time, as a share of an update. Guessed.
constexpr double kJitter = 0.01;
// Tokens per second that one thread makes of text (docs/train-data.md), and threads of the host for
// each GPU.
constexpr double kReadPerS = 2.7e6;
constexpr int kReaders = 8;
// Up to so many ranks have links to each other (train/parallel/groups.cc).
constexpr int kMostAllLinked = 64;
// Error of the cost model itself, beyond the errors of the figures.
constexpr double kTrainModelSpread = 0.08;

// Bytes per element of a matrix, in memory and on the wire.
struct ElementBytes {
    double weight = 0, gradient = 0, master = 0;  // master: with the optimizer's state
    double gathered = 0, summed = 0;
    double vector = 0;  // per element of a vector, all together
};

// A stage or one of its model chunks, on the slowest of its tensor ranks.
struct StageUse : PartUse {
    TrainedElements elements;  // embedding: not set
};

class TrainPredictor {
  public:
    TrainPredictor(TrainWalk& walk, const TrainLinks& links, const TrainCut& cut)
        : walk_(walk), links_(links), cut_(cut), replicas_(cut.replicas()) {}

    Status Prepare() {
        WEFT_TRY(Check());
        const TrainJob& job = walk_.job();
        kinds_ = links_.KindsOf(cut_.ranks());
        room_ = kinds_[0]->memory.value;
        for (const Machine* machine : kinds_) {
            places_.push_back(PlaceOn(*machine));
            room_ = std::min(room_, machine->memory.value);
        }
        data_ = links_.GroupOf(0, cut_.replicas(), cut_.tp);
        // A GPU's transfers overlap with its ops; a processor's overlap only between hosts.
        overlap_ = data_.hosts > 1 || Most([](const TrainPlace& at) { return at.device.op_s; }) > 0;
        train::TrainerOptions options;
        options.dtype = job.dtype;
        options.grad_dtype = job.grad_dtype;
        options.accumulation = cut_.accumulation;
        const DType gradients = train::GradientTypeOf(options, cut_.replicas());
        SetBytes(gradients);
        WEFT_ASSIGN(parts_, walk_.PartsOf({cut_.tp, cut_.ep, cut_.sequence_parallel, cut_.recompute,
                                           gradients, cut_.cp}));
        WEFT_ASSIGN(generated_bytes_, walk_.GeneratedBytes(cut_.tp, cut_.ep));
        for (const TrainPlace& at : places_) {
            const int64_t rows = at.sequence * at.micro_batch;
            WEFT_ASSIGN(const double work, walk_.JudgeWork(cut_.tp, rows, at.threads));
            judge_work_ = std::max(judge_work_, work);
        }
        return SetStages();
    }

    // Memory, and a bound of the time.
    TrainPrediction Bound() const {
        TrainPrediction out;
        out.cut = cut_;
        out.room = room_;
        for (int stage = 0; stage < cut_.pp; ++stage) {
            const double seconds = UseOf(stage).seconds() * static_cast<double>(cut_.accumulation);
            out.update_s = std::max(out.update_s, seconds);
            out.memory.push_back(MemoryOf(stage));
        }
        out.tokens_per_s = Tokens() / out.update_s;
        return out;
    }

    TrainPrediction Predict() const {
        TrainPrediction out = Bound();
        out.hosts = links_.HostOf(cut_.ranks() - 1) + 1;
        out.parts = SlowestStage();
        if (cut_.ranks() > 1) {
            // Expected largest of n standard normal values.
            const double most = std::sqrt(2 * std::log(static_cast<double>(cut_.ranks())));
            out.parts.stragglers = out.parts.total() * kJitter * most;
        }
        // Each rank reads the whole job's batch, beside the update before.
        const double read_s = Most([&](const TrainPlace& at) {
            return Tokens() / kReadPerS / (at.threads > 0 ? at.threads : kReaders);
        });
        out.parts.data = std::max(0.0, read_s - out.parts.total());
        out.update_s = out.parts.total();
        out.tokens_per_s = Tokens() / out.update_s;
        double forward_flops = 0;
        for (const StageUse& stage : stages_) forward_flops += stage.forward_flops;
        // Frozen matrices have no gradients.
        const int passes = walk_.job().lora.on() ? 2 : 3;
        out.flops = passes * forward_flops * cut_.tp * cut_.replicas() *
                    static_cast<double>(cut_.accumulation);
        out.share_of_peak = out.flops / out.update_s / Peak();
        for (const Machine* machine : kinds_) {
            out.spread = std::max(out.spread, Spread(*machine, out.parts));
        }
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

    TrainPlace PlaceOn(const Machine& machine) const {
        const TrainJob& job = walk_.job();
        TrainPlace place;
        place.device = RatesOf(machine);
        if (job.dtype == DType::kF32) {
            place.device.products *= kSingleShare;
            place.device.attention *= kSingleShare;
        }
        place.rates = MeasuredTraining(machine, job.dtype);
        if (machine.measured) place.measured = &*machine.measured;
        place.tensor = links_.NeighboursOf(cut_.tp);
        place.context = links_.GroupOf(0, cut_.cp, cut_.tp);
        place.cp = cut_.cp;
        place.sequence = job.sequence;
        place.micro_batch = cut_.micro_batch;
        place.threads = machine.is_processor() ? machine.threads : 0;
        place.compute = job.dtype;
        return place;
    }

    // The largest value over the kinds of machines: an update waits for the slowest one.
    template <typename Value>
    double Most(const Value& of) const {
        double most = 0;
        for (const TrainPlace& place : places_) most = std::max(most, of(place));
        return most;
    }

    // FLOP/s of all devices of the cut.
    double Peak() const {
        double peak = 0;
        int left = cut_.ranks();
        for (const Machine& host : links_.cluster().hosts) {
            peak += std::min(left, host.devices) * host.compute.value;
            left -= std::min(left, host.devices);
        }
        return peak;
    }

    void SetBytes(DType gradients) {
        const TrainJob& job = walk_.job();
        const double kept = train::KeptBytes(job.update), vector = 8 + kept;
        if (job.lora.on()) {
            bytes_ = {4, 4, kept, 4, 4, vector};
        } else {
            const auto w = static_cast<double>(RowBytes(job.dtype, 1));
            const auto g = static_cast<double>(RowBytes(gradients, 1));
            bytes_ = {w, g, kept + (w < 4 ? 4 : 0), w, g, vector};
        }
    }

    double Tokens() const { return static_cast<double>(cut_.sequences() * walk_.job().sequence); }

    // ---- Chunks -----------------------------------------------------------------------------

    Status SetStages() {
        const auto pp = static_cast<size_t>(cut_.pp);
        const auto each = static_cast<size_t>(cut_.virtual_stages);
        WEFT_ASSIGN(const std::vector<std::vector<int>> keys,
                    walk_.ChunksOf(cut_.pp * cut_.virtual_stages));
        chunks_.resize(keys.size());
        for (const TrainPlace& at : places_) {
            for (const RankParts& parts : *parts_) {
                std::map<int, PartUse> uses;
                for (const auto& [key, part] : parts) {
                    uses.emplace(key, plan::UseOf(part, at, overlap_ && cut_.zero >= 2));
                }
                for (size_t place = 0; place < keys.size(); ++place) {
                    const StageUse use = UseOfChunk(parts, uses, keys[place]);
                    StageUse& slowest = chunks_[place % pp * each + place / pp];
                    const double scratch = std::max(use.scratch, slowest.scratch);
                    if (use.seconds() > slowest.seconds()) slowest = use;
                    slowest.scratch = scratch;
                }
            }
        }
        stages_.resize(pp);
        for (size_t i = 0; i < chunks_.size(); ++i) {
            StageUse& stage = stages_[i / each];
            const double kept = std::max(stage.kept, chunks_[i].kept);
            stage.Add(chunks_[i]);
            stage.elements.Add(chunks_[i].elements);
            stage.kept = kept;  // `kept` of the chunk that keeps the most bytes
        }
        return {};
    }

    StageUse UseOfChunk(const RankParts& parts, const std::map<int, PartUse>& uses,
                        const std::vector<int>& keys) const {
        StageUse all;
        std::vector<UnitSeconds> forward, backward;
        for (const int key : keys) {
            const PartUse& use = uses.at(key);
            const TrainedElements& elements = parts.at(key).elements;
            all.Add(use);
            all.elements.Add(elements);
            const double gather = cut_.zero >= 3 ? Gather(elements.matrices) : 0;
            const double sum = cut_.zero >= 2 ? Scatter(elements.matrices) : 0;
            forward.push_back({use.forward.total(), gather, 0});
            backward.push_back({use.backward.total(), gather, sum});
        }
        // The only stage has an embedding that is also the output matrix.
        if (cut_.pp == 1 && walk_.model().hyper().tied && keys.size() > 1) {
            const TrainedElements& last = parts.at(kLast).elements;
            all.elements.matrices -= last.embedding;
            all.elements.ends -= last.embedding;
            all.elements.frozen_bytes -= last.frozen_embedding_bytes;
        }
        std::ranges::reverse(backward);
        all.forward.shares = TransferSeconds(forward, overlap_, kContention);
        all.backward.shares = TransferSeconds(backward, overlap_, kContention);
        return all;
    }

    const StageUse& UseOf(int stage) const { return stages_[static_cast<size_t>(stage)]; }

    // Seconds in which the replicas gather weights (Gather) or reduce gradients (Scatter).
    double Gather(double elements) const {
        return Most([&](const TrainPlace& at) {
            return AllGatherSeconds(at.measured, data_, elements * bytes_.gathered);
        });
    }
    double Scatter(double elements) const {
        return Most([&](const TrainPlace& at) {
            return ReduceScatterSeconds(at.measured, data_, elements * bytes_.summed,
                                        bytes_.summed);
        });
    }

    // Whether the state of the optimizer is on a drive. (That of vectors, too, but it is small.)
    bool IsOnDrive() const { return walk_.job().drive_bytes_per_s > 0; }

    // Number of ranks over which state is sharded that ZeRO shards from stage `zero` on.
    double SharesFrom(int zero) const { return cut_.zero >= zero ? replicas_ : 1; }

    StageMemory MemoryOf(int stage) const {
        const StageUse& use = UseOf(stage);
        const TrainedElements& e = use.elements;
        const int64_t slots = train::SlotsOf({stage, cut_.pp, cut_.virtual_stages});
        StageMemory memory;
        memory.first_rank = stage * cut_.replicas() * cut_.tp;
        memory.state = e.frozen_bytes + e.vectors * bytes_.vector +
                       e.matrices * bytes_.weight / SharesFrom(3) +
                       e.matrices * bytes_.gradient / SharesFrom(2);
        // (Muon has Adam's second moment for the matrices at the ends.)
        const bool muon = walk_.job().update.kind == train::UpdateKind::kMuon;
        const double kept = e.matrices * bytes_.master + (muon ? 4 * e.ends : 0);
        if (!IsOnDrive()) memory.state += kept / SharesFrom(1);
        const TrainJob& job = walk_.job();
        memory.state += generated_bytes_ / cut_.pp + job.judge_bytes / (cut_.tp * cut_.pp);
        // (The generator reads whole weights.)
        if (cut_.zero >= 3 && job.completions > 0) memory.state += e.matrices * bytes_.weight;
        // (Logits of completions replace other activations.)
        const double logits = 4.0 * static_cast<double>(job.completions) *
                              static_cast<double>(walk_.model().hyper().vocab);
        memory.work = use.kept * static_cast<double>(slots) + std::max(use.brief, logits) +
                      use.scratch + judge_work_;
        if (std::ranges::any_of(kinds_, &Machine::shares_memory)) {
            memory.process = engine::kRankBytes + WindowsBytes();
        }
        // Gathered elements at one time: with transfers beside ops, a neighbor's as well.
        const double whole = e.unit + (overlap_ ? e.layer_unit : 0);
        if (cut_.zero >= 3) memory.work += whole * bytes_.gathered;
        if (cut_.zero >= 2) memory.work += whole * bytes_.summed;
        return memory;
    }

    // Bytes of the windows of a rank's links (train/parallel/groups.h): to all ranks, or in large
    // jobs to ranks of its groups and along a tree.
    double WindowsBytes() const {
        const int all = cut_.ranks() - 1;
        int links = all;
        if (all >= kMostAllLinked) {
            const int tree = std::bit_width(static_cast<unsigned>(all));
            links = std::min(all, cut_.tp - 1 + cut_.replicas() - 1 + 2 + tree);
        }
        return static_cast<double>(cluster::WindowsBytes(links, links));
    }

    // ---- An update --------------------------------------------------------------------------

    // Message to the next stage, for one micro-batch.
    double HopSeconds(int stage) const {
        if (cut_.pp == 1) return 0;
        const program::Program& list = parts_->front().lower_bound(0)->second.graph.program.program;
        const int64_t rows = walk_.job().sequence * cut_.micro_batch;
        const program::Value& x = list.value(list.ops[0].outputs[0]);
        const auto whole = static_cast<double>(RowBytes(x.dtype, x.shape.Elements(rows, rows)));
        const int each = cut_.replicas() * cut_.tp, next = (stage + 1) % cut_.pp;
        const coll::Tier tier = links_.Between(stage * each, next * each);
        const double own = Most([](const TrainPlace& at) {
            return at.measured != nullptr && at.measured->hop ? at.measured->hop->value : 0;
        });
        return coll::MessageSeconds(tier, whole) + own;
    }

    TrainSeconds SlowestStage() const {
        std::vector<ChunkSeconds> seconds;
        for (size_t i = 0; i < chunks_.size(); ++i) {
            const int stage = static_cast<int>(i) / cut_.virtual_stages;
            seconds.push_back({chunks_[i].forward.total(), chunks_[i].backward.total(),
                               HopSeconds(stage), HopSeconds((stage + cut_.pp - 1) % cut_.pp)});
        }
        const PipelineWalk walk =
            WalkPipeline(cut_.pp, cut_.virtual_stages, seconds, cut_.accumulation);
        TrainSeconds slowest;
        for (size_t s = 0; s < stages_.size(); ++s) {
            TrainSeconds all = stages_[s].forward;
            all += stages_[s].backward;
            all = all * static_cast<double>(cut_.accumulation);
            all.hops = std::max(0.0, walk.busy[s] - all.total());
            all.bubble = std::max(0.0, walk.end[s] - walk.busy[s]);
            AddTail(stages_[s].elements, s == 0 || s + 1 == stages_.size(), all);
            if (all.total() > slowest.total()) slowest = all;
        }
        return slowest;
    }

    // Adds the work after the last pass: summing gradients, the optimizer, gathering weights.
    void AddTail(const TrainedElements& e, bool end, TrainSeconds& all) const {
        const auto reduce = [&](double bytes) {
            return Most(
                [&](const TrainPlace& at) { return AllReduceSeconds(at.measured, data_, bytes); });
        };
        double sums = 0;
        if (cut_.zero == 0) sums = reduce(e.matrices * bytes_.summed);
        if (cut_.zero == 1) sums = Scatter(e.matrices);
        if (cut_.zero == 1 || (cut_.zero == 2 && cut_.replicas() > 1)) sums += Gather(e.matrices);
        sums += reduce(e.vectors * 4);
        if (end && cut_.pp > 1 && walk_.model().hyper().tied && !walk_.job().vectors) {
            const double tied = parts_->front().at(kLast).elements.embedding * bytes_.summed;
            const coll::Tier tier = links_.Between(0, (cut_.pp - 1) * cut_.replicas() * cut_.tp);
            sums += coll::MessageSeconds(tier, tied);
        }
        all.shares += sums;
        const double own = e.matrices / SharesFrom(1) + e.vectors;
        const double touched = own * TouchedBytes(bytes_.weight, bytes_.gradient, bytes_.master);
        all.update += Most([&](const TrainPlace& at) {
            if (at.rates == nullptr) return touched / at.device.memory;
            return touched / at.rates->update.value + at.rates->step.value;
        });
        if (!IsOnDrive()) return;
        int ranks = 1;  // that share the host's drive
        for (const Machine* machine : kinds_) ranks = std::max(ranks, machine->devices);
        ranks = std::min(ranks, cut_.ranks());
        const double moved = 2 * ranks * e.matrices / SharesFrom(1) * bytes_.master;
        all.update += moved / walk_.job().drive_bytes_per_s;
    }

    double Spread(const Machine& machine, const TrainSeconds& parts) const {
        const double guess = Figure().spread();
        const std::pair<double, double> terms[] = {
            {parts.products,
             machine.products ? machine.products->spread() : machine.compute.spread() + 0.2},
            {parts.attention, machine.attention ? machine.attention->spread() : guess},
            {parts.memory + parts.update, machine.bandwidth.spread()},
            {parts.launch + parts.stragglers, guess},
            {parts.tensor + parts.shares + parts.hops, links_.cluster().wire.bandwidth.spread()}};
        double squares = kTrainModelSpread * kTrainModelSpread;
        for (const auto& [seconds, spread] : terms) {
            squares += std::pow(seconds / parts.total() * spread, 2);
        }
        return std::sqrt(squares);
    }

    double generated_bytes_ = 0;  // on a tensor rank with all layers
    double judge_work_ = 0;
    TrainWalk& walk_;
    const TrainLinks& links_;
    const TrainCut cut_;
    const double replicas_;
    std::vector<const Machine*> kinds_;
    std::vector<TrainPlace> places_;  // by kind of machine
    double room_ = 0;
    coll::TierGroup data_;
    bool overlap_ = false;  // transfers run beside ops
    ElementBytes bytes_;
    const std::vector<RankParts>* parts_ = nullptr;
    std::vector<StageUse> chunks_;  // [stage * virtual_stages + chunk]
    std::vector<StageUse> stages_;  // sums of their chunks
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
    if (cp > 1) name += fmt::format(" cp{}", cp);
    if (dp > 1) name += fmt::format(" dp{}", dp);
    if (replicas() > 1) name += fmt::format(" zero{}", zero);
    return name;
}

const StageMemory& TrainPrediction::worst() const {
    return *std::ranges::max_element(memory, {}, &StageMemory::total);
}

bool TrainPrediction::IsBetterThan(const TrainPrediction& other) const {
    if (is_roomy() != other.is_roomy()) return is_roomy();
    if (fits() != other.fits()) return fits();
    if (!fits()) return worst().total() < other.worst().total();
    return tokens_per_s > other.tokens_per_s;
}

double TrainPrediction::SecondsOf(int64_t sequences) const {
    return std::ceil(static_cast<double>(sequences) / static_cast<double>(cut.sequences())) *
           update_s;
}

Result<TrainPrediction> PredictTraining(TrainWalk& walk, const TrainLinks& links,
                                        const TrainCut& cut) {
    TrainPredictor predictor(walk, links, cut);
    WEFT_TRY(predictor.Prepare());
    return predictor.Predict();
}

Result<TrainPrediction> BoundTraining(TrainWalk& walk, const TrainLinks& links,
                                      const TrainCut& cut) {
    TrainPredictor predictor(walk, links, cut);
    WEFT_TRY(predictor.Prepare());
    return predictor.Bound();
}

}  // namespace weft::plan
