// Lengths of requests and statistics of their answers.
#include <algorithm>
#include <cmath>
#include <random>

#include "load/load.h"

namespace weft::load {
namespace {

constexpr double kMeanInput = 217, kMeanOutput = 202, kSpread = 1.1;
constexpr int64_t kLeast = 4, kMost = 1024;

int64_t LogNormal(std::mt19937_64& random, double mean) {
    std::lognormal_distribution<double> length(std::log(mean) - kSpread * kSpread / 2, kSpread);
    return std::clamp(static_cast<int64_t>(length(random)), kLeast, kMost);
}

// Linear interpolation, as in NumPy's percentile.
double At(const std::vector<double>& sorted, double share) {
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    const double part = place - static_cast<double>(below);
    return sorted[below] * (1 - part) + sorted[above] * part;
}

Quantiles Of(std::vector<double> seconds) {
    Quantiles result;
    if (seconds.empty()) return result;
    std::ranges::sort(seconds);
    double sum = 0;
    for (const double value : seconds) sum += value;
    result.mean = 1e3 * sum / static_cast<double>(seconds.size());
    result.median = 1e3 * At(seconds, 0.5);
    result.p95 = 1e3 * At(seconds, 0.95);
    result.p99 = 1e3 * At(seconds, 0.99);
    return result;
}

// The largest number of concurrent requests.
int MostAtOnce(const std::vector<LoadAnswer>& answers) {
    std::vector<std::pair<double, int>> changes;
    for (const LoadAnswer& answer : answers) {
        changes.emplace_back(answer.start_s, 1);
        changes.emplace_back(answer.end_s, -1);
    }
    std::ranges::sort(changes);
    int now = 0, most = 0;
    for (const auto& [time, change] : changes) most = std::max(most, now += change);
    return most;
}

}  // namespace

std::vector<Lengths> MakeLengths(const LoadOptions& options) {
    std::mt19937_64 random(options.seed);
    std::vector<Lengths> lengths(static_cast<size_t>(options.requests));
    for (Lengths& one : lengths) {
        one = {options.input_len, options.output_len};
        if (!options.sharegpt) continue;
        one.input = LogNormal(random, kMeanInput);
        one.output = LogNormal(random, kMeanOutput);
    }
    return lengths;
}

LoadReport MakeReport(const std::vector<LoadAnswer>& answers) {
    LoadReport report;
    std::vector<double> first, per_token, gaps, whole;
    double begin_s = INFINITY, end_s = -INFINITY;
    for (const LoadAnswer& answer : answers) {
        begin_s = std::min(begin_s, answer.start_s);
        end_s = std::max(end_s, answer.end_s);
        if (!answer.ok) {
            if (report.failed++ == 0) report.first_error = answer.error;
            continue;
        }
        ++report.completed;
        report.input_tokens += answer.input_tokens;
        report.output_tokens += answer.output_tokens;
        const double latency = answer.end_s - answer.start_s;
        first.push_back(answer.first_s);
        whole.push_back(latency);
        gaps.insert(gaps.end(), answer.gaps_s.begin(), answer.gaps_s.end());
        if (answer.output_tokens > 1) {
            per_token.push_back((latency - answer.first_s) /
                                static_cast<double>(answer.output_tokens - 1));
        }
    }
    report.most_at_once = MostAtOnce(answers);
    report.duration_s = answers.empty() ? 0 : end_s - begin_s;
    const double seconds = std::max(report.duration_s, 1e-9);
    report.request_rate = static_cast<double>(report.completed) / seconds;
    report.output_rate = static_cast<double>(report.output_tokens) / seconds;
    report.total_rate = static_cast<double>(report.input_tokens + report.output_tokens) / seconds;
    report.ttft_ms = Of(std::move(first));
    report.tpot_ms = Of(std::move(per_token));
    report.itl_ms = Of(std::move(gaps));
    report.e2el_ms = Of(std::move(whole));
    return report;
}

}  // namespace weft::load
