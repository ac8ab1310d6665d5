#include "plan/measure.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "backend/device_list.h"
#include "base/deadline.h"
#include "engine/rank/runner.h"
#include "engine/start/measure.h"
#include "fabric/measure.h"
#include "fabric/predict.h"
#include "model_files/synthetic.h"
#include "plan/op_times.h"
#include "plan/train_walk.h"
#include "program/communication.h"
#include "train/run.h"

namespace weft::plan {
namespace {

// kRows: prompt lengths. kSequences: sequences that decode together, with one row of logits each.
const std::vector<int64_t> kRows = {32, 128, 512}, kSequences = {2, 4, 8, 32};
// For stages: a longer prompt would occupy several stages at once.
const std::vector<int64_t> kRowsAlone = {16, 64}, kSequencesAlone = {2, 4, 8};
constexpr int64_t kSumSizes[] = {1 << 10,  4 << 10,   8 << 10, 16 << 10,
                                 64 << 10, 256 << 10, 1 << 20, 4 << 20};
constexpr int64_t kShareSizes[] = {4 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20};
constexpr double kLinkSeconds = 0.05;
// This model has two query heads of 128 columns per KV head; MeasureOptions::model has four of 64.
constexpr const char* kOtherHeads = "synthetic:qwen3-0.6b";

// ---- Steps of a small model ---------------------------------------------------------------------

// The steps to run: a synthetic model, with all ranks as tensor ranks or all as stages.
struct StepsWanted {
    std::string model = {};  // synthetic:NAME:TYPE
    int tp = 1, pp = 1;
    KvTypes kv_dtype;
    // Numbers of sequences that decode together; one sequence alone is always measured.
    std::vector<int64_t> sequences = {};
    std::vector<int64_t> rows = {};  // prompt lengths, ascending; the last should be long
    bool deep = true;                // also decode tokens at late positions
    bool watts = false;              // also measure power
};

struct StepsRun {
    // In order: one token, one token at a late position, tokens of several sequences, prompts.
    std::vector<StepRange> ranges;
    OpTimes times;
    model::Hyper hyper;
    double idle_watts = 0, busy_watts = 0;  // of one host; 0: it has no sensors
    // With stages: mean seconds and mean bytes of a message between stages. `times` then covers
    // only the first stage, and each prompt must fit one chunk (engine::PromptChunk).
    std::pair<double, double> hop;
};

constexpr int64_t kDeep = 1024, kTokens = 24, kDeepTokens = 8;
constexpr int kRepeats = 4;
constexpr double kIdleSeconds = 1;
constexpr double kLeastOp = 1e-8;  // resolution of the clock

// Watts between two surveys of the host that consumes the most.
double WattsBetween(const std::vector<engine::RankReport>& before,
                    const std::vector<engine::RankReport>& after, double seconds) {
    double most = 0;
    for (size_t rank = 0; rank < after.size() && rank < before.size(); ++rank) {
        if (before[rank].sensors != after[rank].sensors) continue;
        const auto sum = [](const std::vector<double>& joules) {
            return std::accumulate(joules.begin(), joules.end(), 0.0);
        };
        most = std::max(
            most, (sum(after[rank].sensor_joules) - sum(before[rank].sensor_joules)) / seconds);
    }
    return most;
}

class StepsRunner {
  public:
    StepsRunner(const cluster::ClusterOptions& cluster, const engine::Job& job,
                const StepsWanted& wanted)
        : cluster_(cluster), job_(job), wanted_(wanted) {
        const int64_t most = wanted.sequences.empty() ? 1 : std::ranges::max(wanted.sequences);
        job_.model = fmt::format("{}:layers={}", wanted.model, std::max(2, wanted.pp));
        job_.tp = wanted.tp;
        job_.pp = wanted.pp;
        job_.kv_dtype = wanted.kv_dtype;
        job_.power = wanted.watts;
        job_.trace = true;
        job_.chunk = std::max(wanted.rows.back(), most);
        job_.ctx = kDeep + kDeepTokens;
        job_.kv_tokens = std::max<int64_t>(most, 32) * 64;  // a page each, and more than ctx
        job_.max_outputs = job_.state_slots = most;
    }

    Result<StepsRun> Run() {
        WEFT_ASSIGN(runner_, engine::StepRunner::Start(cluster_, job_));
        StepsRun run;
        if (wanted_.watts) {
            WEFT_TRY(Watts(run.idle_watts, [] {
                std::this_thread::sleep_for(std::chrono::duration<double>(kIdleSeconds));
                return Status();
            }));
        }
        WEFT_TRY(Tokens(1, 2, 0));  // warm-up
        WEFT_TRY(Watts(run.busy_watts, [&] { return Steps(run); }));
        run.hyper = runner_->rank().hyper();
        const program::Program program = runner_->rank().program();
        WEFT_ASSIGN(std::vector<std::string> traces, Traces());
        if (wanted_.pp > 1) {
            WEFT_TRY(SetHop(traces, run));
            traces.resize(1);  // the other stages have other ops
        }
        WEFT_ASSIGN(run.times, OpTimes::Read(program, traces));
        return run;
    }

  private:
    Result<std::vector<std::string>> Traces() {
        WEFT_ASSIGN(const auto reports, runner_->Finish());
        std::vector<std::string> traces;
        for (const engine::RankReport& report : reports) traces.push_back(report.trace);
        return traces;
    }

    Status SetHop(const std::vector<std::string>& traces, StepsRun& run) const {
        const auto hops = static_cast<double>(wanted_.pp);
        // The last stage answers a greedy row with one candidate.
        const double bytes =
            (static_cast<double>(run.hyper.hidden) * 4 * (hops - 1) + sizeof(backend::Candidate)) /
            hops;
        const StepRange& token = run.ranges[0];
        WEFT_ASSIGN(const double seconds, HopSeconds(traces, token.first, token.last));
        run.hop = {seconds, bytes};
        return {};
    }

    Result<StepRange> Tokens(int64_t sequences, int64_t count, int64_t depth) {
        const int64_t first = runner_->step().number + 1;
        WEFT_TRY(engine::TimeTokens(*runner_, sequences, count, depth));
        return StepRange{
            first, runner_->step().number, {sequences, 1, sequences, depth + count / 2}};
    }

    Status Steps(StepsRun& run) {
        WEFT_ASSIGN(run.ranges.emplace_back(), Tokens(1, kTokens, 0));
        if (wanted_.deep) {
            WEFT_ASSIGN(run.ranges.emplace_back(), Tokens(1, kDeepTokens, kDeep));
        }
        for (const int64_t sequences : wanted_.sequences) {
            WEFT_ASSIGN(run.ranges.emplace_back(), Tokens(sequences, kDeepTokens, 0));
        }
        for (const int64_t rows : wanted_.rows) {
            const int64_t first = runner_->step().number + 1;
            for (int i = 0; i < kRepeats; ++i) {
                WEFT_TRY(engine::TimePrompts(*runner_, 1, rows));
            }
            run.ranges.push_back({first, runner_->step().number, {1, rows, 1, 0}});
        }
        return {};
    }

    template <typename Work>
    Status Watts(double& watts, Work work) {
        WEFT_ASSIGN(const auto before, engine::SurveyRanks(*runner_));
        const int64_t begin_ns = NowNs();
        WEFT_TRY(work());
        const double seconds = SecondsSince(begin_ns);
        WEFT_ASSIGN(const auto after, engine::SurveyRanks(*runner_));
        watts = WattsBetween(before, after, seconds);
        return {};
    }

    cluster::ClusterOptions cluster_;
    engine::Job job_;
    const StepsWanted& wanted_;
    std::unique_ptr<engine::StepRunner> runner_;
};

OpTimes::Work AttentionIn(const StepsRun& run, const StepRange& range) {
    return run.times.WorkOf(range, true);
}

// Extra attention time of a row at a late position, compared with an early one.
OpTimes::Work GrownAttention(const StepsRun& run) {
    const OpTimes::Work token = AttentionIn(run, run.ranges[0]);
    OpTimes::Work grown = AttentionIn(run, run.ranges[1]);
    grown.bytes -= token.bytes;
    grown.flops -= token.flops;
    grown.seconds = std::max(grown.seconds - token.seconds, kLeastOp);
    return grown;
}

// A figure of a machine file, marked as measured.
Figure Told(double value, const char* how) {
    return {value, Mark::kMeasured, std::string("weft plan --measure: ") + how};
}

// Adds the run's rates of products, by rows, to `rates`. If `rates` has a rate for the same rows,
// the higher one stays. experts: adds the rates of products of experts instead.
void AddProducts(const StepsRun& run, bool experts, MeasuredRates& rates) {
    const model::Moe* moe = experts ? &run.hyper.moe : nullptr;
    for (const StepRange& range : run.ranges) {
        if (range.shape.context > kTokens) continue;  // products cost the same at late positions
        for (const auto& [key, work] : run.times.Products(range, moe)) {
            if (work.seconds <= 0) continue;
            const auto& [type, rows] = key;
            auto& curve = experts ? rates.experts[type] : rates.products[type];
            curve[rows] = std::max(curve[rows], work.flops / work.seconds);
        }
    }
}

// Raises the machine's bandwidth to the highest bytes/s of the run's one-row products, and its
// compute to the highest FLOP/s of any product, if these are higher.
void AddPeaks(const StepsRun& run, Machine& machine) {
    for (const StepRange& range : run.ranges) {
        if (range.shape.context > kTokens) continue;
        for (const auto& [key, work] : run.times.Products(range)) {
            if (work.seconds <= 0) continue;
            double& bandwidth = machine.bandwidth.value;
            if (key.second == 1) bandwidth = std::max(bandwidth, work.bytes / work.seconds);
            machine.compute.value = std::max(machine.compute.value, work.flops / work.seconds);
        }
    }
}

// The cache and attention rates for the run's KV type. rates.scores must be set. bandwidth: bytes/s
// of the memory.
MeasuredRates::Cache CacheRates(const StepsRun& run, double bandwidth, const MeasuredRates& rates) {
    const OpTimes::Work grown = GrownAttention(run);
    const double scores = rates.scores ? grown.flops / rates.scores->value : 0;
    const double least = grown.bytes / bandwidth / 4;  // the cache is at most this much faster
    const OpTimes::Work wide = AttentionIn(run, run.ranges.back());
    return {Told(grown.bytes / std::max(grown.seconds - scores, least),
                 "attention of a row over 1,024 positions"),
            Told(wide.flops / std::max(wide.seconds, kLeastOp), "attention of many rows")};
}

// Sets cache, scores, positions and attention of `rates` from two runs. The models of the two runs
// have attention heads of different shapes, which separates the time for bytes from the time for
// arithmetic.
void SetAttention(const StepsRun& run, const StepsRun& other, double bandwidth,
                  MeasuredRates& rates) {
    const OpTimes::Work a = GrownAttention(run), b = GrownAttention(other);
    // Both equations are seconds = bytes * x + flops * y. If x or y is not above 0, reading the
    // cache is assumed to take half of the time.
    const double determinant = a.bytes * b.flops - b.bytes * a.flops;
    double y = (a.bytes * b.seconds - b.bytes * a.seconds) / determinant;
    const double most = a.seconds / a.flops;
    if (!(y > 0 && y < 0.95 * most)) y = most / 2;
    rates.scores = Told(1 / y, "attention of a row, heads of two shapes");
    const MeasuredRates::Cache cache = CacheRates(run, bandwidth, rates);
    rates.cache = cache.cache;
    rates.attention = cache.attention;
    const StepRange& token = run.ranges[0];
    const OpTimes::Work one = AttentionIn(run, token);
    const double each = one.bytes / rates.cache.value + one.flops * y;
    const double seen = static_cast<double>(token.shape.context + 1);
    rates.positions = static_cast<int>(std::max(0.0, std::round((one.seconds / each - 1) * seen)));
}

// Sets op, rest and step of `rates`. The time of a step outside its products and attention is the
// number of ops times the cost of an op, plus bytes divided by the remaining bandwidth. Solves this
// for a step of one row and one of many rows. rates.cache must be set.
void AddOverheads(const StepsRun& run, MeasuredRates& rates) {
    const StepRange &token = run.ranges[0], &many = run.ranges.back();
    const OpTimes::Rest one = run.times.RestOf(token);
    const OpTimes::Rest all = run.times.RestOf(many);
    const auto bytes_of = [&](const StepRange& range) {
        return run.times.WorkOf(range, false).bytes;
    };
    const double bytes = bytes_of(token), more = bytes_of(many) - bytes;
    const double seconds = one.seconds - AttentionIn(run, token).seconds;
    const double grown = all.seconds - AttentionIn(run, many).seconds - seconds;
    double own = seconds;
    if (grown > kLeastOp) {
        rates.rest = Told(more / grown, "ops of many rows that are not products");
        own -= bytes / rates.rest->value;
    }
    rates.op = Told(std::max(own / std::max(one.ops - run.times.attentions(), 1), kLeastOp),
                    "ops of one row that are not products");
    rates.step = Told(std::max(one.gap_s, 0.0), "between the ops of two steps");
}

// ---- Training -----------------------------------------------------------------------------------

constexpr int64_t kTrainLengths[] = {128, 512};
constexpr int64_t kUpdates = 5;
constexpr int kTrainLayers = 2;
constexpr double kLeastSeconds = 1e-7;  // resolution of the clock

// Copies the program of rank 0 and counts the bytes that its optimizer reads and writes.
class TrainingSeen final : public train::TrainListener {
  public:
    Status OnStart(const train::Trainer& trainer, int64_t, int64_t, double) override {
        list = trainer.executable().program();
        const train::TrainerOptions& options = trainer.options();
        const auto weight = static_cast<double>(RowBytes(options.dtype, 1));
        const DType gradients = train::GradientTypeOf(options, trainer.layout().dp);
        update_bytes = static_cast<double>(trainer.state().parameters()) *
                       TouchedBytes(weight, static_cast<double>(RowBytes(gradients, 1)),
                                    train::KeptBytes(options.update) + (weight < 4 ? 4 : 0));
        return {};
    }
    void OnStep(const train::StepLine&) override {}
    Status OnTrained(const model_files::ModelSource&, bool) override { return {}; }

    program::Program list;
    double update_bytes = 0;
};

train::TrainJob TrainJobOf(const MeasureOptions& options, const std::string& device, DType dtype,
                           int64_t rows) {
    train::TrainJob job;
    job.trainer.model = fmt::format("{}:bf16:layers={}", options.train_model, kTrainLayers);
    job.trainer.threads = options.job.threads;
    job.trainer.device = device;
    job.trainer.dtype = dtype;
    job.trainer.recompute = "none";
    job.trainer.time_ops = true;
    job.data.data = {fmt::format("synthetic:random-tokens:{}", rows + 1)};
    job.data.sequence = rows;
    job.schedule.rate = 1e-4;
    job.steps = kUpdates;
    return job;
}

// Adds the rates of ops by kind at this sequence length, and the rates of an update.
void AddTrainingRates(const TrainingSeen& trained, const train::TrainSummary& summary, int64_t rows,
                      TrainingRates& rates) {
    struct Sum {
        double work = 0, seconds = 0;
    };
    std::map<program::OpKind, Sum> sums;
    double all_s = 0, update_s = 0;
    const std::vector<program::OpCost> costs = TrainCosts(trained.list, rows, 1);
    for (size_t i = 0; i < costs.size(); ++i) {
        const program::Op& op = trained.list.ops[i];
        double seconds = 0;  // of the slowest rank
        for (const std::vector<double>& rank : summary.op_s) {
            if (i < rank.size()) seconds = std::max(seconds, rank[i]);
        }
        all_s += seconds;
        if (program::IsCommunication(op.kind())) continue;
        if (program::IsOfUpdate(op.kind())) {
            update_s += seconds;
            continue;
        }
        const auto bytes = static_cast<double>(costs[i].read_bytes + costs[i].written_bytes);
        Sum& sum = sums[op.kind()];
        sum.work += op.Is(program::Trait::kByFlops) ? costs[i].flops : bytes;
        sum.seconds += std::max(seconds, kLeastSeconds);
    }
    for (const auto& [kind, sum] : sums) {
        if (sum.work > 0) rates.ops[kind][static_cast<double>(rows)] = sum.work / sum.seconds;
    }
    rates.update = Told(trained.update_bytes / std::max(update_s, 1e-9), "the optimizer's ops");
    rates.step = Told(std::max(0.0, summary.update_s - all_s), "an update beside its ops");
}

Result<DType> ParseTrainType(std::string_view name) {
    const auto dtype = DTypeOfName(name);
    for (const DType known : {DType::kBF16, DType::kF16, DType::kF32}) {
        if (dtype == known) return known;
    }
    return MakeError(ErrorCode::kUsage, "--train-types {}: expected bf16, f16 or f32", name);
}

// Runs a few updates of a small model with op timings on; each rank is a replica.
Status MeasureTraining(const MeasureOptions& options, const std::string& type, Machine& machine) {
    WEFT_ASSIGN(const DType dtype, ParseTrainType(type));
    WEFT_ASSIGN(const backend::DeviceInfo info, backend::DescribeDevice(options.job.device));
    TrainingRates rates;
    for (const int64_t rows : kTrainLengths) {
        TrainingSeen trained;
        WEFT_ASSIGN(const train::TrainSummary summary,
                    train::RunTraining(options.cluster, TrainJobOf(options, info.name, dtype, rows),
                                       trained));
        AddTrainingRates(trained, summary, rows, rates);
    }
    machine.measured->training[dtype] = std::move(rates);
    return {};
}

// ---- A machine ----------------------------------------------------------------------------------

class MachineMeasurer {
  public:
    MachineMeasurer(const MeasureOptions& options,
                    const std::function<void(const std::string&)>& say)
        : options_(options),
          say_(say),
          ranks_(cluster::RanksOf(options.cluster)),
          kv_dtype_(options.job.kv_dtype.k) {}

    Result<Machine> Run() {
        machine_.about = fmt::format("measured with {} ranks of Weft", ranks_);
        machine_.measured.emplace();
        machine_.bandwidth = Told(0, "products of one row");
        machine_.compute = Told(0, "the fastest product");
        measured().ranks = ranks_;
        WEFT_TRY(Together());
        WEFT_TRY(KvTypes());
        if (ranks_ > 1) {
            WEFT_TRY(Links());
            WEFT_TRY(Alone());
        }
        for (const std::string& type : options_.train_types) {
            say_(fmt::format("training in {}", type));
            WEFT_TRY(MeasureTraining(options_, type, machine_));
        }
        WEFT_TRY(Memory());
        return std::move(machine_);
    }

  private:
    Measured& measured() { return *machine_.measured; }

    Result<StepsRun> Steps(const std::string& model, const std::string& type, StepsWanted wanted) {
        wanted.model = fmt::format("{}:{}", model, type);
        return StepsRunner(options_.cluster, options_.job, wanted).Run();
    }

    // Measures all ranks as tensor ranks.
    Status Together() {
        for (const std::string& type : options_.types) {
            say_(fmt::format("products of {}", type));
            const bool first = &type == &options_.types.front();
            WEFT_ASSIGN(StepsRun run, Steps(options_.model, type,
                                            {.tp = ranks_,
                                             .kv_dtype = kv_dtype_,
                                             .sequences = kSequences,
                                             .rows = kRows,
                                             .watts = first}));
            AddProducts(run, false, measured());
            AddPeaks(run, machine_);
            if (first) first_ = std::move(run);
        }
        WEFT_TRY(Attention());
        AddOverheads(first_, measured());
        if (first_.busy_watts > 0) {
            machine_.watts_idle =
                Told(std::min(first_.idle_watts, first_.busy_watts), "its sensors");
            machine_.watts_busy = Told(first_.busy_watts, "its sensors");
        }
        if (options_.experts.empty()) return {};
        for (const std::string& type : options_.types) {
            say_(fmt::format("experts of {}", type));
            WEFT_ASSIGN(const StepsRun run, Steps(options_.experts, type,
                                                  {.tp = ranks_,
                                                   .kv_dtype = kv_dtype_,
                                                   .sequences = {8, 32},
                                                   .rows = kRows,
                                                   .deep = false}));
            AddProducts(run, true, measured());
        }
        return {};
    }

    // Solves for attention's rates from the first run and from a model with heads of another shape.
    Status Attention() {
        WEFT_ASSIGN(const StepsRun other,
                    Steps(kOtherHeads, options_.types[0],
                          {.tp = ranks_, .kv_dtype = kv_dtype_, .rows = {kRows[0]}}));
        SetAttention(first_, other, machine_.bandwidth.value, measured());
        measured().kv[kv_dtype_] = {measured().cache, measured().attention};
        return {};
    }

    Status KvTypes() {
        for (const std::string& name : options_.kv_types) {
            WEFT_ASSIGN(const DType type, engine::ParseKvType("--kv-types", name));
            if (measured().kv.contains(type)) continue;
            say_(fmt::format("a KV cache of {}", name));
            WEFT_ASSIGN(const StepsRun run,
                        Steps(options_.model, options_.types[0],
                              {.tp = ranks_, .kv_dtype = type, .rows = {kRows.back()}}));
            measured().kv[type] = CacheRates(run, machine_.bandwidth.value, measured());
        }
        return {};
    }

    // Measures all ranks as stages, of which one computes at a time.
    Status Alone() {
        MeasuredRates rates = measured();
        rates.products.clear();
        rates.experts.clear();
        for (const std::string& type : options_.types) {
            say_(fmt::format("products of {} in stages", type));
            WEFT_ASSIGN(const StepsRun run, Steps(options_.model, type,
                                                  {.pp = ranks_,
                                                   .kv_dtype = kv_dtype_,
                                                   .sequences = kSequencesAlone,
                                                   .rows = kRowsAlone}));
            AddProducts(run, false, rates);
            if (&type != &options_.types.front()) continue;
            const MeasuredRates::Cache cache = CacheRates(run, machine_.bandwidth.value, rates);
            rates.cache = cache.cache;
            rates.attention = cache.attention;
            AddOverheads(run, rates);
            const double beyond = run.hop.first - coll::MessageSeconds(tier_, run.hop.second);
            measured().hop = Told(std::max(beyond, 0.0), "a message between stages in a step");
        }
        KeepFaster(rates);
        measured().alone = std::move(rates);
        return {};
    }

    // A rank that computes alone is at least as fast as one among many. If a rate of ranks alone is
    // slower or missing, uses the rate of many ranks.
    void KeepFaster(MeasuredRates& rates) {
        const auto faster = [](const auto& types, auto& own) {
            for (const auto& [type, curve] : types) {
                for (const auto& [rows, rate] : curve) {
                    own[type][rows] = std::max(own[type][rows], rate);
                }
            }
        };
        faster(measured().products, rates.products);
        rates.experts = measured().experts;
        const double times = rates.cache.value / measured().cache.value;
        for (auto& [type, its] : rates.kv) its.cache.value *= std::max(times, 1.0);
    }

    Result<fabric::NetReport> Net(fabric::NetOp op, std::span<const int64_t> sizes,
                                  double seconds) {
        fabric::NetJob job;
        job.net_table = options_.job.net_table;
        job.budget.seconds = seconds;
        job.op = op;
        job.sizes.assign(sizes.begin(), sizes.end());
        return fabric::RunNet(options_.cluster, job);
    }

    Status Curve(fabric::NetOp op, std::span<const int64_t> sizes, Measured::Curve& curve) {
        WEFT_ASSIGN(const fabric::NetReport report, Net(op, sizes, options_.seconds));
        for (const fabric::NetRow& row : report.rows) {
            curve[static_cast<double>(row.size)] = row.timings.typical_us * 1e-6;
        }
        return {};
    }

    Status Links() {
        using fabric::NetOp;
        say_("links and collectives");
        const int64_t small[] = {fabric::kSmallPut}, large[] = {fabric::kLargePut};
        WEFT_ASSIGN(const auto latency, Net(NetOp::kLatency, small, kLinkSeconds));
        WEFT_ASSIGN(const auto bandwidth, Net(NetOp::kBandwidth, large, kLinkSeconds));
        const auto group = fabric::GroupOf(latency, bandwidth);
        if (!group) {
            return MakeError(ErrorCode::kUnsupported, "the links of some pair were not measured");
        }
        machine_.devices = group->per_host();
        measured().hosts = group->hosts;
        tier_ = group->hosts > 1 ? group->far : group->near;
        const auto figures = [](const coll::Tier& tier) {
            return std::pair(Told(tier.bytes_per_s, "puts of 1 MB, the slowest link"),
                             Told(tier.latency_s, "puts of 64 bytes, the slowest link"));
        };
        if (group->per_host() > 1) {
            const auto [rate, wait] = figures(group->near);
            machine_.within = LinkTier{group->per_host(), rate, wait};
        }
        if (group->hosts > 1) {
            const auto [rate, wait] = figures(group->far);
            machine_.wire = "measured";
            machine_.own_wire = Wire{"measured", bandwidth.transport, "", rate, wait, {}};
        }
        WEFT_TRY(Curve(NetOp::kAllReduce, kSumSizes, measured().all_reduce));
        WEFT_TRY(Curve(NetOp::kAllGather, kShareSizes, measured().all_gather));
        WEFT_TRY(Curve(NetOp::kReduceScatter, kShareSizes, measured().reduce_scatter));
        SetSync();
        return {};
    }

    // Sets `sync`: the seconds of an all-reduce within a token's step minus its seconds alone.
    void SetSync() {
        const OpTimes::Sums in_step = first_.times.SumsOf(first_.ranges[0]);
        const coll::TierGroup all{ranks_, measured().hosts, {}, {}};
        const double alone = measured().AllReduceSeconds(all, in_step.bytes).value_or(0);
        measured().sync = Told(std::max(in_step.seconds - alone, 0.0), "an all-reduce in a step");
    }

    // Memory of a rank's device; for processors, the host's memory, which its ranks share.
    Status Memory() {
        const std::string device = backend::DeviceNames(options_.job.device)[0];
        WEFT_ASSIGN(const backend::MemoryPool pool, backend::DescribePool(device));
        machine_.pool = pool.kind;
        const int cores = static_cast<int>(std::thread::hardware_concurrency());
        const int threads = options_.job.threads;
        machine_.threads = threads > 0 ? threads : std::max(1, cores / machine_.devices);
        const bool shared = pool.kind != backend::MemoryKind::kDevice;
        if (shared) {
            measured().cores = std::clamp(cores / machine_.threads, 1, machine_.devices);
        }
        const double total = static_cast<double>(pool.total_bytes);
        machine_.memory = Told(total / (shared ? machine_.devices : 1), "of rank 0's device");
        return {};
    }

    const MeasureOptions& options_;
    const std::function<void(const std::string&)>& say_;
    const int ranks_;
    const DType kv_dtype_;
    Machine machine_;
    StepsRun first_;   // the run of the first weight type
    coll::Tier tier_;  // latency and bandwidth of the slowest link
};

Status CheckModel(const char* flag, const std::string& model, const std::string& type) {
    if (!model_files::Synthetic::IsSpec(model)) {
        return MakeError(ErrorCode::kUsage, "{} {}: expected synthetic:NAME, with NAME one of {}",
                         flag, model, model_files::Synthetic::Names());
    }
    const auto made = model_files::Synthetic::Make(fmt::format("{}:{}:layers=2", model, type));
    return made.ok() ? Status() : Status(made.error());
}

// Rejects bad names before minutes of measurement.
Status CheckNames(const MeasureOptions& options) {
    if (options.types.empty()) return MakeError(ErrorCode::kUsage, "--types: there are none");
    for (const std::string& type : options.types) {
        WEFT_TRY(CheckModel("--measure-with", options.model, type));
        if (options.experts.empty()) continue;
        WEFT_TRY(CheckModel("--measure-experts-with", options.experts, type));
    }
    for (const std::string& type : options.kv_types) {
        const auto known = engine::ParseKvType("--kv-types", type);
        if (!known.ok()) return known.error();
    }
    for (const std::string& type : options.train_types) {
        const auto known = ParseTrainType(type);
        if (!known.ok()) return known.error();
        WEFT_TRY(CheckModel("--measure-training-with", options.train_model, type));
    }
    return {};
}

}  // namespace

Result<Machine> MeasureMachine(const MeasureOptions& options,
                               const std::function<void(const std::string&)>& say) {
    WEFT_TRY(CheckNames(options));
    return MachineMeasurer(options, say).Run();
}

}  // namespace weft::plan
