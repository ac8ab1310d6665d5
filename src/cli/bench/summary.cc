#include "cli/bench/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/file.h"
#include "engine/rank/trace.h"

namespace weft::cli {

AllReduceCost CostOf(const std::vector<engine::RankReport>& reports, const model::Layout& layout) {
    AllReduceCost cost;
    std::vector<double> all;
    for (const engine::RankReport& report : reports) {
        if (report.rank % layout.tp == 0) cost.per_token += report.all_reduces;
        if (report.rank == 0) cost.wire = report.wire;
        if (report.rank == 0) cost.prompt_wire = report.prompt_wire;
        all.insert(all.end(), report.all_reduce_us.begin(), report.all_reduce_us.end());
    }
    if (all.empty()) return cost;
    std::ranges::sort(all);
    cost.p50_us = all[all.size() / 2];
    cost.p99_us = all[all.size() * 99 / 100];
    return cost;
}

Json RanksToJson(const std::vector<engine::RankReport>& reports) {
    Json ranks = Json::array();
    for (const engine::RankReport& r : reports) {
        ranks.push_back({{"rank", r.rank},
                         {"host", r.host},
                         {"device", r.device},
                         {"hardware", r.hardware},
                         {"rss_bytes", r.rss_bytes},
                         {"weight_bytes", r.weight_bytes},
                         {"kv_bytes", r.kv_bytes},
                         {"read_bytes", r.read_bytes},
                         {"received_bytes", r.received_bytes},
                         {"load_s", r.load_s}});
        if (r.drive_misses == 0) continue;
        ranks.back()["drive"] = {{"hits", r.drive_hits},
                                 {"misses", r.drive_misses},
                                 {"read_bytes", r.drive_bytes},
                                 {"read_s", r.drive_s},
                                 {"wait_s", r.drive_wait_s},
                                 {"ahead", r.drive_ahead},
                                 {"ahead_used", r.drive_ahead_used}};
    }
    return ranks;
}

Json ToJson(const AllReduceCost& cost) {
    Json json{{"per_token", cost.per_token}, {"p50_us", cost.p50_us}, {"p99_us", cost.p99_us}};
    if (!cost.wire.empty()) json["wire"] = cost.wire;
    if (!cost.prompt_wire.empty()) json["prompt_wire"] = cost.prompt_wire;
    return json;
}

void AddWire(const std::vector<engine::RankReport>& reports, Json& json) {
    if (reports.empty() || reports[0].wire.empty()) return;
    json["wire"] = reports[0].wire;
    json["prompt_wire"] = reports[0].prompt_wire;
}

std::string RanksText(const std::vector<engine::RankReport>& reports, const AllReduceCost& cost,
                      const std::string& transport) {
    std::string text;
    for (const engine::RankReport& r : reports) {
        fmt::format_to(std::back_inserter(text),
                       "rank {} ({}{}): {} in memory: weights {}, KV {}; {} {}\n", r.rank, r.host,
                       r.device == "cpu" ? "" : fmt::format(", {} {}", r.device, r.hardware),
                       BytesText(r.rss_bytes), BytesText(r.weight_bytes), BytesText(r.kv_bytes),
                       r.received_bytes > 0 ? "received" : "read",
                       BytesText(std::max(r.read_bytes, r.received_bytes)));
        if (r.drive_misses == 0) continue;
        const std::string drive_rate =
            r.drive_s > 0 ? fmt::format(" at {:.2f} GB/s",
                                        static_cast<double>(r.drive_bytes) * 1e-9 / r.drive_s)
                          : "";
        fmt::format_to(std::back_inserter(text),
                       "  experts on the drive: {:.1f} % of uses found them in memory; {} read{}; "
                       "steps waited {:.2f} s; {} of {} reads ahead were used\n",
                       100.0 * static_cast<double>(r.drive_hits) /
                           static_cast<double>(r.drive_hits + r.drive_misses),
                       BytesText(r.drive_bytes), drive_rate, r.drive_wait_s, r.drive_ahead_used,
                       r.drive_ahead);
    }
    if (cost.per_token > 0) {
        fmt::format_to(std::back_inserter(text),
                       "all-reduce: {} a token over {}{}{}, p50 {:.1f} us, p99 {:.1f} us each\n",
                       cost.per_token, transport, cost.wire == "f64" ? "" : " as " + cost.wire,
                       cost.prompt_wire == cost.wire ? "" : " (prompts: " + cost.prompt_wire + ")",
                       cost.p50_us, cost.p99_us);
    }
    return text;
}

Status WriteTrace(const std::string& path, const std::vector<engine::RankReport>& reports) {
    std::vector<std::string> events;
    for (const engine::RankReport& report : reports) events.push_back(report.trace);
    const std::string text = engine::TraceFile(events);
    return WriteFile(path, std::as_bytes(std::span(text)));
}

}  // namespace weft::cli
