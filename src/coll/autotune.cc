#include "coll/autotune.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "coll/choose.h"
#include "coll/time_table.h"

namespace weft::coll {
namespace {

constexpr size_t kAnySize = std::numeric_limits<size_t>::max();
// Sizes of a token's all-reduces first; the largest sizes only if time remains.
constexpr std::array<size_t, 8> kSizes{8192, 65536, 1024, 256, 16384, 262144, 1048576, 4194304};
constexpr size_t kMostModelled = size_t{64} << 20;
// Most seconds in which the rate of the wire is measured: 10 Mbit/s needs 0.8.
constexpr double kMostRateSeconds = 2;
constexpr int kRounds = 2;
constexpr int64_t kMostCalls = 200;
constexpr int64_t kLeastCalls = 3;
constexpr size_t kSeriesCalls = 8;  // of a series, between two looks at the time
// Calls to check a cached table, and number of tries.
constexpr int64_t kCheckCalls = 31;
constexpr int kCheckTries = 3;
constexpr std::array<size_t, 2> kCheckSizes{8192, 65536};

// Repeats all_reduce; the first rank gets the median.
class Trial {
  public:
    Trial(Comm& comm, const net::PeerMonitor* monitor, size_t most_bytes)
        : comm_(comm), monitor_(monitor), data_(most_bytes / sizeof(float)) {}

    Result<double> MedianUs(size_t bytes, Choice choice, int64_t calls) {
        us_.clear();
        const auto data = std::span(data_).first(bytes / sizeof(float));
        for (int64_t i = 0; i < calls; ++i) {
            const int64_t begin_ns = NowNs();
            WEFT_TRY(comm_.AllReduce(data, net::OpTag(), choice));
            us_.push_back(static_cast<double>(NowNs() - begin_ns) * 1e-3);
        }
        if (monitor_ != nullptr && monitor_->Failed()) return monitor_->FailureDuring(net::OpTag());
        if (us_.empty()) return 0.0;
        const auto middle = us_.begin() + static_cast<std::ptrdiff_t>(us_.size() / 2);
        std::nth_element(us_.begin(), middle, us_.end());
        return *middle;
    }

    Status Sum(std::span<float> values) { return comm_.AllReduce(values, net::OpTag()); }
    // Sends the first rank's values to all.
    template <typename T>
    Status Agree(std::span<T> values) {
        return comm_.Broadcast(std::as_writable_bytes(values), 0, net::OpTag());
    }
    template <typename T>
    Status Agree(T& value) {
        return Agree(std::span(&value, 1));
    }

  private:
    Comm& comm_;
    const net::PeerMonitor* monitor_;
    std::vector<float> data_;
    std::vector<double> us_;
};

// Measures one size within `seconds`, `rounds` times. Only the first rank's table is right; the
// others get it later.
Status MeasureSize(Trial& trial, TimeTable& table, size_t place, size_t bytes,
                   const std::vector<Algorithm>& candidates, double seconds, int rounds) {
    const int64_t begin_ns = NowNs();
    const double each_s = seconds / static_cast<double>(candidates.size()) / rounds;
    for (int round = 0; round < rounds; ++round) {
        for (size_t c = 0; c < candidates.size(); ++c) {
            const Choice choice{candidates[c], WireType::kFull};
            WEFT_ASSIGN(const double first_us, trial.MedianUs(bytes, choice, 1));
            const double fit = each_s / std::max(first_us * 1e-6, 1e-8);
            int64_t calls =
                std::clamp(static_cast<int64_t>(std::min(fit, 1e6)), kLeastCalls, kMostCalls);
            // A busy machine may take far longer than estimated.
            if (round > 0 && SecondsSince(begin_ns) > seconds) calls = 0;
            WEFT_TRY(trial.Agree(calls));
            if (calls == 0) continue;
            // A first call is often slow, so it is not counted.
            WEFT_ASSIGN(const double some_us, trial.MedianUs(bytes, choice, calls));
            table.Note(place, c, some_us);
        }
    }
    table.NoteRound(place);
    return {};
}

// Adds larger sizes, for which no time remained, by the model of the algorithms' times over links
// fitted to the measured sizes. If these do not determine the links (ranks 0: links of two kinds),
// the table stays as it was.
void AddUnmeasured(const Tuning& tuning, int ranks, const std::vector<Algorithm>& candidates,
                   std::vector<TuningRow>& rows) {
    const size_t largest = rows.empty() ? 0 : rows.back().max_bytes;
    const auto tier = ranks > 0 ? FitTier(ranks, rows) : std::nullopt;
    if (!tier) {
        for (const TuningRow& row : tuning.rows(Collective::kAllReduce)) {
            if (row.max_bytes > largest) rows.push_back({row.max_bytes, row.choice, 0});
        }
        if (rows.back().max_bytes != kAnySize) rows.push_back({kAnySize, rows.back().choice, 0});
        return;
    }
    const TierGroup group{ranks, 1, *tier, *tier};
    for (size_t bytes = largest * 2; bytes <= kMostModelled; bytes *= 2) {
        const auto size = static_cast<double>(bytes);
        const Algorithm usual = tuning.For(Collective::kAllReduce, bytes).algorithm;
        const Algorithm fastest = FastestAllReduce(group, candidates, size);
        const bool clearly = AllReduceSeconds(group, fastest, size) <
                             kClearly * AllReduceSeconds(group, usual, size);
        rows.push_back({bytes, {clearly ? fastest : usual, WireType::kFull}, 0});
    }
    rows.push_back({kAnySize, rows.back().choice, 0});
}

// Sends the first rank's rows to all.
Result<Tuning> Share(Trial& trial, const Tuning& tuning) {
    std::string text = tuning.ToJson();
    uint64_t length = text.size();
    WEFT_TRY(trial.Agree(length));
    if (length > (size_t{1} << 20)) {
        return MakeError(ErrorCode::kCorrupt,
                         "a tuning table of {} bytes from the group's first "
                         "rank",
                         length);
    }
    text.resize(length);
    WEFT_TRY(trial.Agree(std::span(text)));
    return Tuning::FromJson(text);
}

}  // namespace

Result<Tuning> MeasureTuning(Comm& comm, const TuneOptions& options) {
    if (comm.size() == 1) return comm.tuning();
    const int64_t begin_ns = NowNs();
    Trial trial(comm, options.monitor, *std::ranges::max_element(kSizes));
    // In its first call a group finds out which ranks share a host, and gets the table for them.
    WEFT_TRY(trial.MedianUs(kSizes.front(), {}, 1));
    Tuning tuning = comm.tuning();
    const std::vector<Algorithm> candidates = AlgorithmsFor(comm.size(), options.several_hosts);
    TimeTable table(candidates);
    std::vector<size_t> measured;  // bytes, by index in the table
    double byte_us = 0;            // for the last size
    for (size_t i = 0; i < kSizes.size(); ++i) {
        const double left_s = options.seconds - SecondsSince(begin_ns);
        // Least time to measure this size: kRounds rounds of one first call and kLeastCalls further
        // calls per candidate.
        const double least_s = byte_us * 1e-6 * static_cast<double>(kSizes[i]) *
                               static_cast<double>(candidates.size()) * kRounds * (1 + kLeastCalls);
        // The first size, which a token's all-reduce has, is always measured. The second one gives
        // the rate (UsAByte), on which types on the wire depend, so a slow wire gets more time.
        const bool fits = left_s > 0 && least_s < left_s;
        uint64_t go_on = i == 0 || (i == 1 && least_s < kMostRateSeconds) || fits ? 1 : 0;
        WEFT_TRY(trial.Agree(go_on));
        if (go_on == 0) continue;
        const double part_s = std::max(0.0, left_s / static_cast<double>(kSizes.size() - i));
        const Algorithm usual = tuning.For(Collective::kAllReduce, kSizes[i]).algorithm;
        const size_t place = table.Add(kSizes[i], usual);
        measured.push_back(kSizes[i]);
        WEFT_TRY(MeasureSize(trial, table, place, kSizes[i], candidates, part_s, kRounds));
        byte_us = table.UsOf(place) / static_cast<double>(kSizes[i]);
    }
    for (;;) {
        const auto doubtful = table.Doubtful();
        const bool late = SecondsSince(begin_ns) > 2 * options.seconds;
        uint64_t place = doubtful && !late ? *doubtful : measured.size();
        WEFT_TRY(trial.Agree(place));
        if (place >= measured.size()) break;
        WEFT_TRY(MeasureSize(trial, table, place, measured[place], candidates,
                             options.seconds / static_cast<double>(kSizes.size()), 1));
    }
    std::vector<TuningRow> rows = table.Rows();
    AddUnmeasured(tuning, options.several_hosts ? 0 : comm.size(), candidates, rows);
    WEFT_TRY(tuning.Set(Collective::kAllReduce, std::move(rows)));
    return Share(trial, tuning);
}

Result<SeriesUs> MeasureSeries(Comm& comm, const SeriesOptions& options) {
    if (comm.size() == 1) return SeriesUs();
    Trial trial(comm, options.monitor, options.bytes);
    const Choice choice = comm.tuning().For(Collective::kAllReduce, options.bytes);
    WEFT_TRY(trial.MedianUs(options.bytes, choice, 1));  // (The ranks begin together.)
    const int64_t begin_ns = NowNs();
    const auto ranks = static_cast<size_t>(comm.size());
    const auto own = static_cast<size_t>(comm.rank());
    double sum = 0, squares = 0, calls = 0;
    std::vector<double> all_computed_us(ranks);
    for (uint64_t go_on = 1; go_on == 1;) {
        std::array<double, kSeriesCalls> call_us{};
        std::vector<float> computed_us(kSeriesCalls * ranks);  // by call and rank
        for (size_t i = 0; i < kSeriesCalls; ++i) {
            const int64_t compute_ns = NowNs();
            if (options.compute) WEFT_TRY(options.compute());
            computed_us[i * ranks + own] = static_cast<float>(NowNs() - compute_ns) * 1e-3f;
            WEFT_ASSIGN(call_us[i], trial.MedianUs(options.bytes, choice, 1));
        }
        WEFT_TRY(trial.Sum(computed_us));  // (The others' places are 0.)
        for (size_t i = 0; i < kSeriesCalls; ++i) {
            const auto ranks_us = std::span(computed_us).subspan(i * ranks, ranks);
            const double wait_us = std::ranges::max(ranks_us) - ranks_us[0];
            const double us = std::max(0.0, call_us[i] - wait_us);
            sum += us;
            squares += us * us;
            for (size_t rank = 0; rank < ranks; ++rank) all_computed_us[rank] += ranks_us[rank];
        }
        calls += kSeriesCalls;
        go_on = SecondsSince(begin_ns) < options.seconds ? 1 : 0;
        WEFT_TRY(trial.Agree(go_on));
    }
    const auto [fastest, slowest] = std::ranges::minmax_element(all_computed_us);
    SeriesUs series;
    series.slowest = static_cast<int>(slowest - all_computed_us.begin());
    series.slowest_us = *slowest / calls;
    series.fastest_us = *fastest / calls;
    series.mean_us = sum / calls;
    const double variance = squares / calls - series.mean_us * series.mean_us;
    series.error_us = std::sqrt(std::max(0.0, variance) / calls);
    return series;
}

Result<bool> TuningHolds(Comm& comm, const Tuning& tuning, const net::PeerMonitor* monitor) {
    if (comm.size() == 1) return true;
    Trial trial(comm, monitor, *std::ranges::max_element(kCheckSizes));
    uint64_t holds = 1;
    for (size_t bytes : kCheckSizes) {
        const double expected_us = PredictedUs(tuning, bytes);
        if (expected_us <= 0) continue;
        uint64_t good = 0;
        for (int i = 0; i < kCheckTries && good == 0; ++i) {
            const Choice choice = tuning.For(Collective::kAllReduce, bytes);
            WEFT_ASSIGN(const double us, trial.MedianUs(bytes, choice, kCheckCalls));
            good = us <= expected_us * kStaleFactor && us >= expected_us / kStaleFactor ? 1 : 0;
            WEFT_TRY(trial.Agree(good));
        }
        holds &= good;
    }
    return holds == 1;
}

}  // namespace weft::coll
