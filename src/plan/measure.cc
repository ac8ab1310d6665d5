#include "plan/measure.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "backend/device_list.h"
#include "base/deadline.h"
#include "engine/measure.h"
#include "engine/runner.h"
#include "fabric/measure.h"
#include "fabric/predict.h"
#include "plan/op_times.h"

namespace weft::plan {
namespace {

// Rows of prompts; sequences that decode together, which also have so many rows of logits.
constexpr int64_t kRows[] = {32, 128, 512}, kSequences[] = {2, 4, 8, 32};
constexpr int64_t kMostSequences = kSequences[std::size(kSequences) - 1];
constexpr int64_t kDeep = 1024, kTokens = 24, kDeepTokens = 8;
constexpr int kRepeats = 4;
constexpr int64_t kSumSizes[] = {1 << 10,  4 << 10,   8 << 10, 16 << 10,
                                 64 << 10, 256 << 10, 1 << 20, 4 << 20};
constexpr double kIdleSeconds = 1, kLinkSeconds = 0.05;
constexpr double kLeastOp = 1e-8;  // what a clock can tell

Figure Told(double value, const char* how) {
    return {value, Mark::kMeasured, std::string("weft plan --measure: ") + how};
}

// Steps [first, last], which are alike.
struct StepRange {
    int64_t first = 0, last = 0;
    program::StepShape shape;
};

// What a model of one type gave.
struct TypeRun {
    // A token, one far on, tokens of kSequences, prompts of kRows.
    std::vector<StepRange> ranges;
    OpTimes times;
    double idle_watts = 0, busy_watts = 0;  // of a host; 0: no sensors
};

// Watts of the host that drew most, between two surveys.
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

class TypeMeasurer {
  public:
    TypeMeasurer(const MeasureOptions& options, const std::string& type, int tp, int pp)
        : cluster_(options.cluster), job_(options.job) {
        job_.model = fmt::format("{}:{}:layers={}", options.model, type, std::max(2, pp));
        job_.tp = tp;
        job_.pp = pp;
        job_.power = true;
        job_.chunk = kRows[std::size(kRows) - 1];
        job_.ctx = kDeep + kDeepTokens;
        job_.kv_tokens = kMostSequences * 64;  // more than ctx: a page for each
        job_.max_outputs = kMostSequences;
    }

    Result<TypeRun> Run() {
        job_.trace = true;
        WEFT_ASSIGN(runner_, engine::StepRunner::Start(cluster_, job_));
        TypeRun run;
        WEFT_TRY(Watts(run.idle_watts, [] {
            std::this_thread::sleep_for(std::chrono::duration<double>(kIdleSeconds));
            return Status();
        }));
        WEFT_TRY(Tokens(1, 2, 0));  // to warm up
        WEFT_TRY(Watts(run.busy_watts, [&] { return Steps(run); }));
        const program::Program program = runner_->rank().program();
        WEFT_ASSIGN(const auto traces, Traces());
        WEFT_ASSIGN(run.times, OpTimes::Read(program, traces));
        return run;
    }

    // All ranks as stages: what a message takes, and how many bytes it has on average.
    Result<std::pair<double, double>> RunStages() {
        job_.trace = true;
        WEFT_ASSIGN(runner_, engine::StepRunner::Start(cluster_, job_));
        WEFT_TRY(Tokens(1, 2, 0));  // to warm up
        WEFT_ASSIGN(const StepRange range, Tokens(1, kTokens, 0));
        const model::Hyper& hyper = runner_->rank().hyper();
        const auto hops = static_cast<double>(job_.pp);
        const double bytes = (static_cast<double>(hyper.hidden) * 4 * (hops - 1) +
                              static_cast<double>(hyper.vocab) * 4) /
                             hops;
        WEFT_ASSIGN(const auto traces, Traces());
        WEFT_ASSIGN(const double seconds, HopSeconds(traces, range.first, range.last));
        return std::pair(seconds, bytes);
    }

  private:
    Result<std::vector<std::string>> Traces() {
        WEFT_ASSIGN(const auto reports, runner_->Finish());
        std::vector<std::string> traces;
        for (const engine::RankReport& report : reports) traces.push_back(report.trace);
        return traces;
    }

    Result<StepRange> Tokens(int64_t sequences, int64_t count, int64_t depth) {
        const int64_t first = runner_->step().number + 1;
        WEFT_TRY(engine::TimeTokens(*runner_, sequences, count, depth));
        return StepRange{
            first, runner_->step().number, {sequences, 1, sequences, depth + count / 2}};
    }

    Status Steps(TypeRun& run) {
        WEFT_ASSIGN(run.ranges.emplace_back(), Tokens(1, kTokens, 0));
        WEFT_ASSIGN(run.ranges.emplace_back(), Tokens(1, kDeepTokens, kDeep));
        for (const int64_t sequences : kSequences) {
            WEFT_ASSIGN(run.ranges.emplace_back(), Tokens(sequences, kDeepTokens, 0));
        }
        for (const int64_t rows : kRows) {
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
    std::unique_ptr<engine::StepRunner> runner_;
};

// Products of one type, and what all types give of the machine.
void AddProducts(const TypeRun& run, Machine& machine) {
    for (const StepRange& range : run.ranges) {
        if (range.shape.context > kTokens) continue;  // far on products are the same
        for (const auto& [key, work] : run.times.Products(range.shape, range.first, range.last)) {
            if (work.seconds <= 0) continue;
            const auto& [type, rows] = key;
            const double flops = work.flops / work.seconds, bytes = work.bytes / work.seconds;
            double& rate = machine.measured->products[type][rows];
            rate = std::max(rate, flops);
            machine.compute.value = std::max(machine.compute.value, flops);
            if (rows == 1) machine.bandwidth.value = std::max(machine.bandwidth.value, bytes);
        }
    }
}

// Of the first type: what isn't a product.
void AddOverheads(const TypeRun& run, Machine& machine) {
    const StepRange& token = run.ranges[0];
    const OpTimes::Rest rest = run.times.RestOf(token.first, token.last);
    Measured& measured = *machine.measured;
    measured.op = Told(std::max(rest.seconds / std::max(rest.ops, 1), kLeastOp),
                       "ops of one row that are no products");
    measured.step = Told(std::max(rest.gap_s, 0.0), "between the ops of two steps");
    const auto attention = [&](const StepRange& range) {
        return run.times.Attention(range.shape, range.first, range.last);
    };
    const OpTimes::Work deep = attention(run.ranges[1]), wide = attention(run.ranges.back());
    // A row's overhead is another's: what grows with the context is left.
    const double grown = deep.seconds - attention(token).seconds;
    const double bytes = deep.bytes - attention(token).bytes;
    const double least = bytes / machine.bandwidth.value / 4;  // no cache is that much faster
    measured.cache =
        Told(bytes / std::max(grown, least), "attention of a row over 1,024 positions");
    measured.attention =
        Told(wide.flops / std::max(wide.seconds, kLeastOp), "attention of 512 rows");
}

// (Bytes of a message count by their mean: the model is linear in them.)
Status AddHop(const MeasureOptions& options, int ranks, const coll::Tier& tier, Machine& machine) {
    TypeMeasurer measurer(options, options.types[0], 1, ranks);
    WEFT_ASSIGN(const auto hop, measurer.RunStages());
    const double beyond = hop.first - coll::MessageSeconds(tier, hop.second);
    machine.measured->hop = Told(std::max(beyond, 0.0), "a message between stages in a step");
    return {};
}

Status AddLinks(const MeasureOptions& options, const TypeRun& run, int ranks, Machine& machine) {
    fabric::NetJob job;
    job.net_table = options.job.net_table;
    job.budget.seconds = kLinkSeconds;
    job.op = fabric::NetOp::kLatency;
    job.sizes = {fabric::kSmallPut};
    WEFT_ASSIGN(const fabric::NetReport latency, fabric::RunNet(options.cluster, job));
    job.op = fabric::NetOp::kBandwidth;
    job.sizes = {fabric::kLargePut};
    WEFT_ASSIGN(const fabric::NetReport bandwidth, fabric::RunNet(options.cluster, job));
    const auto group = fabric::GroupOf(latency, bandwidth);
    if (!group) {
        return MakeError(ErrorCode::kUnsupported, "the links of some pair were not measured");
    }
    job.op = fabric::NetOp::kAllReduce;
    job.budget.seconds = options.seconds;
    job.sizes.assign(std::begin(kSumSizes), std::end(kSumSizes));
    WEFT_ASSIGN(const fabric::NetReport sums, fabric::RunNet(options.cluster, job));
    Measured& measured = *machine.measured;
    measured.ranks = ranks;
    for (const fabric::NetRow& row : sums.rows) {
        measured.all_reduce[static_cast<double>(row.size)] = row.timings.typical_us * 1e-6;
    }
    machine.devices = group->per_host();
    const auto figures = [](const coll::Tier& tier) {
        return std::pair(Told(tier.bytes_per_s, "puts of 1 MB, the slowest link"),
                         Told(tier.latency_s, "puts of 64 bytes, the slowest link"));
    };
    if (group->per_host() > 1) {
        const auto [rate, wait] = figures(group->near);
        machine.within.push_back({group->per_host(), rate, wait});
    }
    if (group->hosts > 1) {
        const auto [rate, wait] = figures(group->far);
        machine.wire = "measured";
        machine.own_wire = Wire{"measured", bandwidth.transport, "", rate, wait, std::nullopt};
    }
    // What an all-reduce of a token takes in its step beyond what it takes alone.
    const StepRange& token = run.ranges[0];
    const OpTimes::Sums in_step = run.times.SumsOf(token.shape, token.first, token.last);
    const double alone = measured.AllReduceSeconds(ranks, in_step.bytes).value_or(0);
    measured.sync = Told(std::max(in_step.seconds - alone, 0.0), "an all-reduce in a step");
    return AddHop(options, ranks, group->hosts > 1 ? group->far : group->near, machine);
}

// Device memory of a rank; of processors the host's, shared by its ranks.
Status AddMemory(const MeasureOptions& options, Machine& machine) {
    const std::string device = backend::DeviceNames(options.job.device)[0];
    WEFT_ASSIGN(const backend::MemoryPool pool, backend::DescribePool(device));
    machine.pool = pool.kind;
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const int threads = options.job.threads;
    machine.threads = threads > 0 ? threads : std::max(1, cores / machine.devices);
    const bool shared = pool.kind != backend::MemoryKind::kDevice;
    const double total = static_cast<double>(pool.total_bytes);
    machine.memory = Told(total / (shared ? machine.devices : 1), "of rank 0's device");
    return {};
}

}  // namespace

Result<Machine> MeasureMachine(const MeasureOptions& options,
                               const std::function<void(const std::string&)>& say) {
    if (options.types.empty()) return MakeError(ErrorCode::kUsage, "--types: there are none");
    const int ranks = cluster::RanksOf(options.cluster);
    Machine machine;
    machine.about = fmt::format("measured with {} ranks of Weft", ranks);
    machine.measured.emplace();
    machine.bandwidth = Told(0, "products of one row");
    machine.compute = Told(0, "the fastest product");
    TypeRun first;
    for (const std::string& type : options.types) {
        say(fmt::format("products of {}", type));
        TypeMeasurer measurer(options, type, ranks, 1);
        WEFT_ASSIGN(TypeRun run, measurer.Run());
        AddProducts(run, machine);
        if (first.ranges.empty()) first = std::move(run);
    }
    AddOverheads(first, machine);
    if (ranks > 1) {
        say("links and all-reduces");
        WEFT_TRY(AddLinks(options, first, ranks, machine));
    }
    WEFT_TRY(AddMemory(options, machine));
    if (first.busy_watts > 0) {
        machine.watts_idle = Told(std::min(first.idle_watts, first.busy_watts), "its sensors");
        machine.watts_busy = Told(first.busy_watts, "its sensors");
    }
    return machine;
}

}  // namespace weft::plan
