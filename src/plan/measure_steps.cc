#include "plan/measure_steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "base/deadline.h"
#include "engine/measure.h"
#include "engine/runner.h"

namespace weft::plan {
namespace {

constexpr int64_t kDeep = 1024, kTokens = 24, kDeepTokens = 8;
constexpr int kRepeats = 4;
constexpr double kIdleSeconds = 1;
constexpr double kLeastOp = 1e-8;  // resolution of the clock

// Watts of the host with the highest consumption between two surveys.
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
        job_.kv_tokens = std::max<int64_t>(most, 32) * 64;  // a page for each, and more than ctx
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

}  // namespace

Figure Told(double value, const char* how) {
    return {value, Mark::kMeasured, std::string("weft plan --measure: ") + how};
}

Result<StepsRun> RunSteps(const cluster::ClusterOptions& cluster, const engine::Job& job,
                          const StepsWanted& wanted) {
    return StepsRunner(cluster, job, wanted).Run();
}

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

MeasuredRates::Cache CacheRates(const StepsRun& run, double bandwidth, const MeasuredRates& rates) {
    const OpTimes::Work grown = GrownAttention(run);
    const double scores = rates.scores ? grown.flops / rates.scores->value : 0;
    const double least = grown.bytes / bandwidth / 4;  // the cache is at most this much faster
    const OpTimes::Work wide = AttentionIn(run, run.ranges.back());
    return {Told(grown.bytes / std::max(grown.seconds - scores, least),
                 "attention of a row over 1,024 positions"),
            Told(wide.flops / std::max(wide.seconds, kLeastOp), "attention of many rows")};
}

void SetAttention(const StepsRun& run, const StepsRun& other, double bandwidth,
                  MeasuredRates& rates) {
    const OpTimes::Work a = GrownAttention(run), b = GrownAttention(other);
    // Both equations are seconds = bytes * x + flops * y. If they have no solution above 0, reading
    // the cache is taken as half of the time.
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

// The time of a step outside its products and attention is the number of ops times the cost of an
// op, plus bytes divided by the remaining bandwidth. Solves this for a step of one row and one of
// many rows.
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
        rates.rest = Told(more / grown, "ops of many rows that are no products");
        own -= bytes / rates.rest->value;
    }
    rates.op = Told(std::max(own / std::max(one.ops - run.times.attentions(), 1), kLeastOp),
                    "ops of one row that are no products");
    rates.step = Told(std::max(one.gap_s, 0.0), "between the ops of two steps");
}

}  // namespace weft::plan
